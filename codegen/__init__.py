"""The stages of a reshard, in order:

spec        what a user says becomes a `Description`, and that a `Reshard`
planner     a `Reshard` becomes a `Plan`: one exchange, or collectives of the basis
learn       what loaders hold, compared with a layout
emit        a `Plan` becomes contexts, and these, by `templates/`, the files of a bundle
backends    the modules of one kind each; `registry` lists them, `base` says what one is
verify      modules are run against the oracle, without an accelerator
compile     and go through the real compilers
show, cli   what people see of it

trace, propagate, partition     programs: from a function to shardings of all its values
hardware, workers               what the others stand on
"""
