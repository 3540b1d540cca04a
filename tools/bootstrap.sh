#!/usr/bin/env bash
# Installs what a build of Kvilt needs and this machine lacks, through apt. Says what and why, asks
# nothing, and does nothing when all is there.
#
#   tools/bootstrap.sh          what `make demo` and `make test` need
#   tools/bootstrap.sh ci       also what .ci/run needs; NVRTC from PyPI into build/nvrtc where the
#                               system has none
#   tools/bootstrap.sh --list   the packages with their reasons; installs nothing
#
# KVILT_SKIP_BOOTSTRAP=1 skips it, for machines that get these things another way.
set -euo pipefail

build_packages() {
  cat <<'LIST'
g++                  the compiler (C++20)
cmake                configures the build
ninja-build          runs the build
libhwy-dev           Highway: SIMD on the CPU
libfmt-dev           fmt: text of messages
nlohmann-json3-dev   JSON of plans and reports
libcli11-dev         CLI11: arguments of the kvilt command
libgtest-dev         GoogleTest: the tests
librapidcheck-dev    RapidCheck: the property tests
python3              checks of layers, headers and README in the tests
LIST
}

ci_packages() {
  cat <<'LIST'
clang                the second compiler
clang-format         checks the format
clang-tidy           checks the source
libclang-rt-dev      clang's sanitizer runtimes
LIST
}

# The compiler of GPU kernels. Its package holds one library and its data; nothing of it runs here.
nvrtc_folder=build/nvrtc
has_nvrtc() {
  compgen -G '/usr/local/cuda*/lib64/libnvrtc.so.1[23]' >/dev/null ||
    compgen -G '/usr/local/cuda*/lib/libnvrtc.so.1[23]' >/dev/null ||
    ldconfig -p 2>/dev/null | grep -q 'libnvrtc\.so\.1[23]' ||
    compgen -G "$nvrtc_folder/nvidia/*/lib/libnvrtc.so.1[23]" >/dev/null
}
install_nvrtc() {
  [ "$mode" = ci ] && ! has_nvrtc || return 0
  say "NVRTC is missing: nvidia-cuda-nvrtc from PyPI, unpacked into $nvrtc_folder"
  local wheels
  wheels=$(mktemp -d)
  python3 -m pip download -q --disable-pip-version-check --no-deps --only-binary=:all: \
    -d "$wheels" 'nvidia-cuda-nvrtc>=13,<14' || fail 'pip could not download nvidia-cuda-nvrtc.'
  rm -rf "$nvrtc_folder"
  mkdir -p "$(dirname "$nvrtc_folder")"
  python3 -m zipfile -e "$wheels"/nvidia_cuda_nvrtc-*.whl "$wheels/unpacked"
  mv "$wheels/unpacked" "$nvrtc_folder"
  rm -rf "$wheels"
}

say() { printf 'bootstrap: %s\n' "$*"; }

fail() {
  printf 'bootstrap: %s\n' "$1" >&2
  printf 'Kvilt needs these (Debian names):\n' >&2
  printf '%s\n' "$wanted" | sed 's/^/  /' >&2
  printf 'Install them, then build with KVILT_SKIP_BOOTSTRAP=1 set.\n' >&2
  exit 1
}

is_installed() {
  [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]
}

cd "$(dirname "$0")/.."
mode=${1:-}
wanted=$(build_packages)
case "$mode" in
  '') ;;
  ci) wanted=$(build_packages; ci_packages) ;;
  --list) build_packages; ci_packages; exit 0 ;;
  *) echo "usage: tools/bootstrap.sh [ci | --list]" >&2; exit 2 ;;
esac

if [ "${KVILT_SKIP_BOOTSTRAP:-0}" = 1 ]; then
  say 'skipped, because KVILT_SKIP_BOOTSTRAP=1.'
  exit 0
fi

if ! command -v apt-get >/dev/null || ! command -v dpkg-query >/dev/null; then
  fail 'this system has no apt, so nothing can be installed from here.'
fi

missing=()
while read -r package reason; do
  is_installed "$package" || missing+=("$package")
done <<<"$wanted"
# Only to fetch NVRTC, and only where no pip came with Python.
if [ "$mode" = ci ] && ! has_nvrtc && ! python3 -m pip --version >/dev/null 2>&1; then
  wanted+=$'\npython3-pip          fetches NVRTC'
  missing+=(python3-pip)
fi
if [ "${#missing[@]}" -eq 0 ]; then
  install_nvrtc
  exit 0
fi

say "installing what this machine lacks:"
for package in "${missing[@]}"; do
  printf '%s\n' "$wanted" | grep -E "^$(printf '%s' "$package" | sed 's/[+]/[+]/g') " | sed 's/^/  /'
done

as_root=()
if [ "$(id -u)" -ne 0 ]; then
  command -v sudo >/dev/null || fail 'installing needs root, and there is no sudo here.'
  as_root=(sudo)
fi
apt() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get -q -o DPkg::Lock::Timeout=300 "$@" </dev/null
}
install_missing() { apt install -y --no-install-recommends "${missing[@]}"; }

# The package lists are fetched only when they are absent or too old to serve.
if ! apt-get -s -q install --no-install-recommends "${missing[@]}" >/dev/null 2>&1; then
  say 'the package lists do not know all of them: apt-get update.'
  apt update || fail 'apt-get update failed.'
fi
if ! install_missing; then
  say 'the install failed; once more with fresh package lists.'
  apt update || fail 'apt-get update failed.'
  install_missing || fail 'apt-get could not install them.'
fi
install_nvrtc
say 'done.'
