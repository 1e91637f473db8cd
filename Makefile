# make demo    set up .venv once, then see deep exploration in about two minutes
# make install set up .venv once, with all extras except CUDA
# make train   set up .venv once, then train by the paper's protocol (run it again to resume)
# make test    set up and run the tests
# make installed set up, and run all commands from an installed wheel, without a checkout
# make check   set up, and check format, lint and types
# make mutants set up, change the code in 60 places, one at a time, and see whether the tests notice
# make golden  set up, and compare small runs with those of the commit REF, byte for byte
# make bench   set up and run the benchmarks
# make docs    set up and build the documentation into site/
# ARGS passes further flags, PYTHON chooses the interpreter, VENV the environment's folder.

PYTHON ?= $(firstword $(shell for p in python3.11 python3.10 python3 python; do \
  $$p -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 12))' 2>/dev/null \
  && echo $$p; done))
VENV ?= .venv
ARGS ?=
TEST_EXTRAS ?= test,maze,deepsea,analysis,sweep
BIN := $(VENV)/bin
CHECK := $(VENV)/check
DOCS := $(VENV)/docs
INSTALL := $(BIN)/python -m pip install --disable-pip-version-check --quiet -c constraints.txt

.PHONY: demo install train test installed check mutants golden bench docs clean

demo: $(VENV)/installed-demo
	$(BIN)/python -m ob2i_tf.demo $(ARGS)

install: $(VENV)/installed-test

train: $(VENV)/installed
	$(BIN)/python run_experiment.py --gin_files=ob2i_atari.gin $(ARGS)

test: $(VENV)/installed-test
	$(BIN)/python -m pytest $(ARGS)

installed: $(VENV)/installed-test
	$(BIN)/python -m pytest -n 0 tests/installed.py

check: $(VENV)/installed-test $(CHECK)/installed
	$(CHECK)/bin/ruff format --check .
	$(CHECK)/bin/ruff check .
	$(CHECK)/bin/mypy --python-executable=$(BIN)/python

mutants: $(VENV)/installed-test
	$(BIN)/python -m tests.mutants $(ARGS)

golden: $(VENV)/installed-test
	$(BIN)/python -m tests.golden $(REF) $(ARGS)

bench: $(VENV)/installed-test
	$(BIN)/python -m benchmarks $(ARGS)

docs: $(VENV)/installed-test $(DOCS)/installed
	$(BIN)/python docs/tools/configuration.py build/docs
	$(BIN)/python docs/tools/game.py build/docs
	NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --strict

$(VENV)/created:
	@$(or $(PYTHON),false) -c 'import sys; sys.exit(not (3, 10) <= sys.version_info[:2] < (3, 12))' \
	  || { echo 'error: ob2i_tf needs Python 3.10 or 3.11, and none was found (PYTHON="$(PYTHON)"):' \
	            'name one, as in make PYTHON=/path/to/python3.11' >&2; exit 2; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/installed: $(VENV)/created setup.py constraints.txt
	$(INSTALL) -e .
	@touch $@

$(VENV)/installed-demo: $(VENV)/created setup.py constraints.txt
	$(INSTALL) -e '.[demo]'
	@touch $@ $(VENV)/installed

$(VENV)/installed-test: $(VENV)/created setup.py constraints.txt
	$(INSTALL) -e '.[$(TEST_EXTRAS)]'
	@touch $@ $(VENV)/installed $(VENV)/installed-demo

$(CHECK)/installed: $(VENV)/created requirements-check.txt
	$(BIN)/python -m venv $(CHECK)
	$(CHECK)/bin/python -m pip install --disable-pip-version-check --quiet -r requirements-check.txt
	@touch $@

$(DOCS)/installed: $(VENV)/created docs/requirements.txt
	$(BIN)/python -m venv $(DOCS)
	$(DOCS)/bin/python -m pip install --disable-pip-version-check --quiet -r docs/requirements.txt
	@touch $@

clean:
	rm -rf build dist site *.egg-info .pytest_cache .mypy_cache .ruff_cache
