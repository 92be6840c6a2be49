"""One relayout: README.md says what it moves, plan.json lists every transfer."""
