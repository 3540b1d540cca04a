# Fronts over tools/bootstrap.sh and the CMake presets, which also work alone.
PRESET ?= release

.PHONY: help demo test build bootstrap format clean

help:
	@echo 'make demo      install what is missing, build, run the demo on real data'
	@echo 'make test      the same set-up, then every test'
	@echo 'make build     the same set-up, then library, command and tests'
	@echo 'make format    clang-format on our files'
	@echo 'make clean     remove build/'
	@echo 'PRESET=$(PRESET)  one of: release dev asan tsan'

bootstrap:
	@tools/bootstrap.sh

demo: bootstrap
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET) --target kvilt_command
	build/$(PRESET)/cli/kvilt demo

build: bootstrap
	cmake --preset $(PRESET)
	cmake --build --preset $(PRESET)

test: build
	ctest --preset $(PRESET)

format:
	git ls-files '*.h' '*.cc' '*.c' | xargs clang-format -i

clean:
	rm -rf build
