"""One relayout: README.md describes it, plan.json lists every transfer."""
