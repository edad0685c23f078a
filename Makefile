# Every verb sets up .venv by itself. README.md says what to type without make.
PYTHON ?= python3
BIN := .venv/bin
READY := .venv/ready
# What the site is made of, as a word: nothing where git does not say, and then it is built each time.
STATE = $(shell git rev-parse -q --verify HEAD >/dev/null 2>&1 && { env | grep ^BOOK_; git rev-parse HEAD; \
	git diff --binary HEAD; git ls-files -z --others --exclude-standard | xargs -0 -r cat; } | git hash-object --stdin)
# Three processes for two cores: a kernel that starts and a page that loads leave a core idle.
PYTEST := $(BIN)/python -m pytest --nbval -n 3 --dist loadfile
# Kernels of an older processor for PyTorch, OpenBLAS, MKL, oneDNN and NumPy, which add in another order.
KERNELS := ATEN_CPU_CAPABILITY=avx2 OPENBLAS_CORETYPE=Haswell MKL_CBWR=AVX2 ONEDNN_MAX_CPU_ISA=AVX2 \
	NPY_DISABLE_CPU_FEATURES="X86_V4 AVX512_ICL" OMP_NUM_THREADS=2
# Without the compiled modules, each of a hundred processes compiles thousands of files again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: book site pdf test test-all fresh check execute figures bench processors setup clean

book: $(READY)  ## build the site from the committed, executed notebooks, where it is not that already
	@test "$$(cat _build/state 2>/dev/null)" = "$(or $(STATE),unknown)" || $(MAKE) --no-print-directory site
	@echo "The book is at $(CURDIR)/_build/html/index.html"

site:
	rm -rf _build
	$(BIN)/jupyter-book build . --all -W -n --keep-going
	@echo "$(STATE)" > _build/state

pdf:  ## the site, and the whole book as a PDF that it links to
	rm -rf _build
	BOOK_PDF=1 $(MAKE) book
	$(BIN)/python -m book.pdf

test: check book  ## prove what matters: library, every notebook re-executed, built site
	$(PYTEST)

test-all: check pdf  ## prove everything, planted faults and other kernels included
	$(PYTEST) -m "slow or not slow"
	$(MAKE) processors

fresh:  ## both commands of the README, on a clone that has nothing of yours: no home, no settings
	folder=$$(mktemp -d) && git clone -q . $$folder/clone && cd $$folder/clone && \
	env -i HOME=$$folder PATH=/usr/local/bin:/usr/bin:/bin PYTHON=$(shell command -v $(PYTHON)) \
		sh -c 'make book && make test'; status=$$?; rm -rf $$folder; exit $$status

check: $(READY)  ## lint, types, and the floors of attnlib
	$(BIN)/ruff check . && $(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

processors: $(READY)  ## what computes, as an older processor would
	$(KERNELS) $(PYTEST) attnlib claims experiments chapters $(addprefix tests/,library claims experiments book)

execute: $(READY)  ## re-run the chapters in place, in parallel
	$(BIN)/python -m book.execute

figures: $(READY)  ## redraw what no chapter draws
	$(BIN)/python -m book.drawings

bench: $(READY)  ## the ratios against what a user would use instead, and the page of them
	$(BIN)/python -m experiments.benchmarks

clean:
	rm -rf _build .venv

setup: $(READY)  ## .venv with the pins

$(READY): requirements.txt pyproject.toml install.py
	$(PYTHON) -m venv .venv
	$(BIN)/python install.py
	touch $@
