# A thin front to CMake; `make help` lists the targets. Builds go to build/<preset>.
PREFIX ?= /usr/local
DESTDIR ?=
JOBS ?= $(shell nproc)
DEMO ?= perf all_reduce -n 4 -b 8 -e 16M -f 8
CTEST_ARGS ?=
# As CTEST_ARGS, for options that leave out no test.
CTEST_FLAGS ?=
PEERS_ARGS ?= --quick
MINUTES ?= 10
SECONDS_EACH ?= 100
SEED ?= 1
TORCH_PYTHON ?= /usr/bin/python3
# ON: what is installed or packaged has the GPU kernels, too (needs nvcc).
GPU_KERNELS ?= OFF
# ThreadSanitizer of GCC 12 cannot cope with the widest address randomisation of newer kernels.
NO_ASLR = $(shell setarch -R true 2>/dev/null && echo setarch -R)

.DEFAULT_GOAL := help
.PHONY: help build demo train-torch docs test soak fuzz bench bench-peers install package package-check wheel-check docs-check lint format asan tsan clean

# $(call configure,preset,extra arguments): quiet unless it fails.
define configure
	@mkdir -p build
	@cmake --preset $(1) $(2) > build/configure-$(1).log 2>&1 || { cat build/configure-$(1).log; exit 1; }
endef

help:
	@echo 'make demo      build the library and the command, time an all-reduce of four CPU ranks'
	@echo 'make train-torch  DistributedDataParallel on four ranks (CPUs, or GPUs if there are), with the Python named by TORCH_PYTHON'
	@echo 'make test      build everything and run all tests'
	@echo 'make soak      random work, faults and endings for MINUTES=$(MINUTES), seeds from SEED=$(SEED) on'
	@echo 'make fuzz      libFuzzer on what reads foreign bytes, SECONDS_EACH=$(SECONDS_EACH) each (needs clang)'
	@echo 'make docs      the documentation as a site: build/site/html/index.html'
	@echo 'make bench     build and run the micro benchmarks'
	@echo 'make bench-peers  time CPU ranks against the MPIs and Gloo of this machine: build/peers/peers.html'
	@echo 'make install   install to PREFIX=$(PREFIX), staged under DESTDIR when that is set'
	@echo 'make package   deb, rpm and an archive: build/release/packages'
	@echo 'make package-check  those debs in a bare Debian of its own, beside NVIDIA'"'"'s (root, debootstrap, a mirror)'
	@echo 'make wheel-check  the Python wheel in a fresh virtual environment (a package index)'
	@echo 'make docs-check  every command line of the pages, slow ones too: an hour'
	@echo 'make build     build the library, the command and the examples (build/release)'
	@echo 'make lint      clang-format and tidy.py as checks, then clang-tidy over all sources'
	@echo 'make format    lay out the sources with clang-format'
	@echo 'make asan      tests under AddressSanitizer and UndefinedBehaviorSanitizer'
	@echo 'make tsan      tests under ThreadSanitizer'
	@echo 'make clean     remove build/'
	@echo 'JOBS=$(JOBS) sets how much runs at once; CTEST_ARGS adds to ctest, as in CTEST_ARGS="-R base."'

build:
	@scripts/install-deps.sh build
	$(call configure,release,-DTUTTI_TESTS=OFF -DTUTTI_BENCH=OFF)
	@cmake --build build/release -j $(JOBS)

demo:
	@scripts/install-deps.sh build
	$(call configure,release,-DTUTTI_TESTS=OFF -DTUTTI_BENCH=OFF)
	@cmake --build build/release -j $(JOBS) --target tutti
	build/release/bin/tutti $(DEMO)

test:
	@scripts/install-deps.sh test
	$(call configure,release,-DTUTTI_TESTS=ON -DTUTTI_BENCH=OFF)
	@cmake --build build/release -j $(JOBS)
	@rm -f build/release/faults-table.tsv build/release/ctest.xml
	@ctest --preset release -j $(JOBS) --output-junit $(CURDIR)/build/release/ctest.xml $(CTEST_FLAGS) $(CTEST_ARGS); result=$$?; \
	  python3 tests/faults/table.py build/release/faults-table.tsv build/release/ctest.xml $(if $(CTEST_ARGS),,--whole) || result=1; exit $$result

docs:
	@scripts/install-deps.sh docs
	$(call configure,release,-DTUTTI_TESTS=OFF -DTUTTI_BENCH=OFF)
	@cmake --build build/release -j $(JOBS) --target tutti
	@python3 scripts/site.py build/release/bin/tutti build/site

train-torch:
	@scripts/install-deps.sh torch
	$(call configure,release,-DTUTTI_TESTS=ON -DTUTTI_BENCH=OFF)
	@cmake --build build/release -j $(JOBS) --target python_stage
	PYTHONPATH=build/release/python $(TORCH_PYTHON) -m tutti run -n 4 examples/train_torch.py

fuzz:
	@scripts/install-deps.sh fuzz
	$(call configure,fuzz,$(if $(shell command -v clang-16),,-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++))
	@cmake --build build/fuzz -j $(JOBS) --target fuzz_targets
	python3 tests/fuzz/run.py --programs build/fuzz/bin --seconds $(SECONDS_EACH)

soak:
	@scripts/install-deps.sh test
	$(call configure,release,-DTUTTI_TESTS=ON -DTUTTI_BENCH=OFF)
	@cmake --build build/release -j $(JOBS) --target soak_rank tutti
	python3 tests/soak/soak.py --rank-program build/release/bin/soak_rank --minutes $(MINUTES) --seed $(SEED) $(SOAK_ARGS)

bench:
	@scripts/install-deps.sh bench
	$(call configure,release,-DTUTTI_TESTS=OFF -DTUTTI_BENCH=ON)
	@cmake --build build/release -j $(JOBS) --target bench
	@cmake --build build/release --target run_bench

bench-peers:
	@scripts/install-deps.sh build
	$(call configure,release,-DTUTTI_TESTS=OFF -DTUTTI_BENCH=OFF)
	@cmake --build build/release -j $(JOBS) --target nccl
	@mkdir -p build/peers
	python3 bench/peers/run.py $(PEERS_ARGS) --html build/peers/peers.html --json build/peers/peers.json

install:
	@scripts/install-deps.sh build
	$(call configure,release,-DTUTTI_TESTS=OFF -DTUTTI_BENCH=OFF -DTUTTI_GPU_KERNELS=$(GPU_KERNELS))
	@cmake --build build/release -j $(JOBS)
	@DESTDIR='$(DESTDIR)' cmake --install build/release --prefix '$(PREFIX)' --strip

package:
	@scripts/install-deps.sh package
	$(call configure,release,-DTUTTI_TESTS=OFF -DTUTTI_BENCH=OFF -DTUTTI_GPU_KERNELS=$(GPU_KERNELS))
	@cmake --build build/release -j $(JOBS)
	@cd build/release && cpack > cpack.log 2>&1 || { cat cpack.log; exit 1; }
	@ls -l build/release/packages

# What cannot run here says why, and that is no failure.
package-check: package
	@scripts/install-deps.sh bare
	@scripts/package_check.sh build/release/packages || test $$? -eq 77

wheel-check:
	@scripts/install-deps.sh build
	@scripts/wheel_check.sh || test $$? -eq 77

docs-check:
	@scripts/install-deps.sh test docs lint
	$(call configure,release,-DTUTTI_TESTS=ON -DTUTTI_BENCH=OFF)
	@cmake --build build/release -j $(JOBS)
	@python3 tests/docs/lines_test.py build/release --python /usr/bin/python3 $(if $(shell $(TORCH_PYTHON) -c 'import torch' 2>&1),,--torch $(TORCH_PYTHON)) \
	  --slow || test $$? -eq 77

asan tsan:
	@scripts/install-deps.sh test
	$(call configure,$@)
	@cmake --build build/$@ -j $(JOBS)
	@$(NO_ASLR) ctest --preset $@ -j $(JOBS) $(CTEST_FLAGS) $(CTEST_ARGS)

lint:
	@scripts/install-deps.sh lint
	$(call configure,dev)
	@scripts/format.sh --check || test $$? -eq 77  # without the version that decides, it says so
	@python3 scripts/tidy.py
	@scripts/clang-tidy.sh build/dev $(JOBS)

format:
	@scripts/install-deps.sh lint
	@scripts/format.sh

clean:
	@rm -rf build
