# Fronts over tools/bootstrap.sh and the CMake presets, which also work alone.
PRESET ?= release

.PHONY: help demo test build bootstrap compiler format clean

help:
	@echo 'make demo      install what is missing, build, run the demo on real data'
	@echo 'make test      the same set-up, then every test'
	@echo 'make build     the same set-up, then library, command and tests'
	@echo 'make format    clang-format on our files'
	@echo 'make clean     remove build/'
	@echo 'PRESET=$(PRESET)  one of: release dev asan tsan shared (clang++, shared library)'

bootstrap:
	@tools/bootstrap.sh

# What bootstrap does not bring: only the preset shared needs it.
compiler:
	@[ '$(PRESET)' != shared ] || command -v clang++ >/dev/null || \
	  { echo 'PRESET=shared needs clang++: tools/bootstrap.sh ci, or apt-get install clang' >&2; exit 1; }

demo: bootstrap compiler
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET) --target kvilt_command
	build/$(PRESET)/cli/kvilt demo

build: bootstrap compiler
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET)

test: build
	ctest --preset $(PRESET)

format:
	@command -v clang-format >/dev/null || \
	  { echo 'clang-format is missing: tools/bootstrap.sh ci, or apt-get install clang-format' >&2; exit 1; }
	git ls-files '*.h' '*.cc' '*.c' | xargs clang-format -i

clean:
	rm -rf build
