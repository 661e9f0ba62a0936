# The everyday verbs. Everything is cargo underneath.
.PHONY: check lab test fmt doc

check: ## what CI runs
	.ci/run

lab: ## a simulated node with everything running on it
	cargo run -p testbed -- lab

test:
	cargo test --workspace

fmt:
	cargo fmt --all

doc:
	cargo doc --workspace --no-deps --open
