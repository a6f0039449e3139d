# Needed: python3 (3.11 or newer, with venv and headers), gcc, make, git. The rest goes into .venv. A target that is up to date does
# nothing again: the files in .venv/stamps remember what was done. `make` alone prints the targets: the lines that begin with ##.
SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:
MAKEFLAGS += --no-builtin-rules

PYTHON ?= python3
STORE ?= ram
BIN := .venv/bin
STAMPS := .venv/stamps
PIP := $(BIN)/python -m pip --disable-pip-version-check -q
BUILD := $(BIN)/python setup.py -q build_ext --inplace

.PHONY: help demo demo-zeromq test lint build bench soak stress faults canaries asan dist clean

help:
	@echo "make TARGET, where TARGET is one of"
	@sed -n 's/^## /    /p' Makefile

## demo      run a year of flights through one engine, a broker, and Spark; STORE=lmdb or STORE=ring: on disk, killed half way
demo: $(STAMPS)/core $(STAMPS)/demo
	$(BIN)/xump demo --store $(STORE)
	$(BIN)/xump demo --broker
	if command -v java > /dev/null || [ -n "$${JAVA_HOME:-}" ]; then $(MAKE) --no-print-directory $(STAMPS)/spark; fi
	$(BIN)/xump demo --spark

## demo-zeromq   clients, four workers and a pair of Majordomo brokers; kills; what happened, as a table and as build/demo-zeromq.svg
demo-zeromq: $(STAMPS)/core $(STAMPS)/demo
	mkdir -p build
	$(BIN)/python -m xump.zeromq.demo --picture build/demo-zeromq.svg

## test      run the linters and every test but Spark's: python -m tests.spark
test: lint
	$(BIN)/python -m pytest -q -n auto --maxprocesses 4

## lint      run ruff, mypy, stubtest and cython-lint
lint: $(STAMPS)/core $(STAMPS)/test
	$(BIN)/ruff check --quiet --output-format concise .
	$(BIN)/mypy
	$(BIN)/python -m mypy.stubtest xump_ext --concise --mypy-config-file pyproject.toml --ignore-disjoint-bases --allowlist tests/stubtest-allowlist.txt
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint xump_ext benchmarks tests

## build     compile the core: three minutes on two idle cores; later only what changed
build: $(STAMPS)/core

## bench     measure everything that benchmarks/RESULTS.md shows, and write it
bench: $(STAMPS)/core $(STAMPS)/bench
	$(BIN)/python -m benchmarks --write

## soak      make a million random calls to the engine and to the model of it, and compare
soak: $(STAMPS)/core $(STAMPS)/test
	XUMP_STEPS=1000000 $(BIN)/python -m pytest -s tests/model/test_state_machine.py

## stress    run the tests 20 times in random order on a busy machine: they must say the same each time
stress: $(STAMPS)/core $(STAMPS)/test
	$(BIN)/python -m tests.stress

## faults    power loss, failing disks and more, by the hour; writes docs/reliability.md
faults: $(STAMPS)/core $(STAMPS)/test
	$(BIN)/python -m tests.faults

## canaries  build the core with one defect at a time: the tests must find each
canaries: $(STAMPS)/core $(STAMPS)/test
	$(BIN)/python -m tests.builds.canaries

## asan      run the tests over a core that checks every access to memory, and for undefined behaviour (AddressSanitizer, UBSan)
# Without libstdc++ it does not see the exceptions of C++ libraries.
# pytest's handler of faults would take the place of its own. `tests/builds/sanitizer.py` says which tests are left out, and why.
asan: $(STAMPS)/test
	$(BIN)/python -m tests.builds.variants asan
	cd build/asan && LD_PRELOAD="$$(gcc -print-file-name=libasan.so) $$(gcc -print-file-name=libstdc++.so.6)" \
	    PYTHONMALLOC=malloc ASAN_OPTIONS=detect_leaks=0 UBSAN_OPTIONS=halt_on_error=1:print_stacktrace=1 \
	    $(CURDIR)/$(BIN)/python -m pytest -q --capture=sys -p no:faulthandler -p tests.builds.sanitizer \
	    -n auto --maxprocesses 4

## dist      make what users install, install it apart from this tree, and try it
dist: $(STAMPS)/python
	rm -rf dist build/installed
	$(PIP) install build
	$(BIN)/python -m build
	! tar -tf dist/*.tar.gz | grep -v tests/faults/shim.c | grep -E '\.(c|so)$$'
	$(PYTHON) -m venv build/installed
	build/installed/bin/pip --disable-pip-version-check -q install dist/*.whl
	cd build/installed && bin/python $(CURDIR)/tests/installed.py
	build/installed/bin/xump --help > build/installed/help.txt

## clean     delete what was built, the builds of count, asan and canaries too, which take minutes each
clean:
	rm -rf build dist *.egg-info .hypothesis .mypy_cache .pytest_cache .ruff_cache $(STAMPS)/core $(STAMPS)/flags
	rm -f xump_ext/*/*.so
	find . -name __pycache__ -not -path './.venv/*' -prune -exec rm -rf {} +

$(STAMPS)/python:
	$(PYTHON) -m venv .venv
	$(BIN)/python -c "import tomllib; print(*tomllib.load(open('pyproject.toml', 'rb'))['build-system']['requires'], sep='\n')" \
	    > .venv/build-requires.txt
	$(PIP) install -r .venv/build-requires.txt
	mkdir -p $(STAMPS) && touch $@

# With other flags, everything is compiled anew; else what depends on the files that changed.
$(STAMPS)/flags: setup.py $(STAMPS)/python
	@echo "Compiling the core: three minutes on two idle cores, ten on a busy machine. Later only what changed is compiled."
	$(BUILD) --force
	touch $@

$(STAMPS)/core: $(STAMPS)/flags $(wildcard xump_ext/*/*.pyx xump_ext/*/*.pxd)
	$(BUILD)
	touch $@

# An editable install takes over what was compiled in place.
$(STAMPS)/demo $(STAMPS)/test $(STAMPS)/bench $(STAMPS)/spark: pyproject.toml | $(STAMPS)/core
	$(PIP) install --no-build-isolation -e '.[$(EXTRAS)]'
	touch $@

$(STAMPS)/demo: EXTRAS := demo,broker,zeromq
$(STAMPS)/test: EXTRAS := demo,broker,test
$(STAMPS)/bench: EXTRAS := bench
$(STAMPS)/spark: EXTRAS := demo,broker,spark
