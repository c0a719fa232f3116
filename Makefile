# `make demo` and `make test` are all a newcomer needs; both build their own .venv from python3.
PYTHON ?= python3
BIN := .venv/bin

.PHONY: demo test test-all test-portable lint fuzz bench clean

# The stamp is newer than pyproject.toml once everything is installed.
.venv/installed: pyproject.toml
	$(PYTHON) -m venv .venv
	$(BIN)/python -m pip install --quiet --upgrade pip
	$(BIN)/python -m pip install --quiet -e '.[dev]'
	touch $@

demo: .venv/installed
	$(BIN)/python examples/demo.py

lint: .venv/installed
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

# two workers, each with one thread for BLAS: its threads would wait for each other by spinning
PYTEST := OPENBLAS_NUM_THREADS=1 $(BIN)/python -m pytest -q -n 2 --dist worksteal

test: lint
	$(PYTEST) -m "not long"

test-all: lint
	$(PYTEST)

# The tests with the rounding of other processors; `make test-portable ON=prescott-narrow` with that of one.
test-portable: .venv/installed
	OPENBLAS_NUM_THREADS=1 $(BIN)/python tests/portable.py $(ON) -- -n 2 --dist worksteal

# `make fuzz CALLS=20000 SEED=1`: random calls, checked by NumPy alone; fails if anything is found
fuzz: .venv/installed
	$(BIN)/python tests/fuzz --calls $(or $(CALLS),2000) --seed $(or $(SEED),0)

# `make bench DATA=folder` adds what needs data sets; the last six fail when a check is missed.
# `make bench SPACE=folder` adds 6 GB of data made in that folder (13 GB in all), streamed through 1.5 GB of memory.
# Numbers that benchmarks/results holds from the same sources are kept: an interrupted run goes on where it was.
bench: .venv/installed
	$(BIN)/python -m pip install --quiet -e '.[bench]'
	$(BIN)/python benchmarks/bench_planted.py
	$(BIN)/python benchmarks/bench_choosing.py $(if $(DATA),--data '$(DATA)') --out docs/benchmarks/choosing.json
	$(BIN)/python benchmarks/show_choosing.py
ifdef DATA
	$(BIN)/python benchmarks/bench_peers.py --data '$(DATA)'
	$(BIN)/python benchmarks/bench_heldout.py --data '$(DATA)'
endif
	$(BIN)/python benchmarks/bench_positive.py
	$(BIN)/python benchmarks/bench_verdicts.py
	$(BIN)/python benchmarks/bench_transitions.py
	$(BIN)/python benchmarks/bench_recovery.py
	$(BIN)/python benchmarks/bench_steps.py
	$(BIN)/python benchmarks/bench_dask.py
ifdef SPACE
	$(BIN)/python benchmarks/bench_stream.py --folder '$(SPACE)' --out docs/benchmarks/stream.json
endif

clean:
	rm -rf .venv build dist
	find . -name __pycache__ -prune -exec rm -rf {} +
