"""The stages of a reshard, in order:

spec        parses user input into a `Description`, and that into a `Reshard`
planner     makes a `Plan` from a `Reshard`: one exchange, or collectives of the basis
learn       compares the contents of loaders with a layout
text        makes template contexts from a `Plan`, and renders them by `templates/`
backends    make modules of one kind each; `base` has the interface
emit        writes the files of a bundle
operations  one file for each kind of bundle: its files, plan, pages, verdict, price
verify      runs one module against the oracle of `checks`, without an accelerator
compile     compiles one with the real compilers
bundles     checks, verifies, compiles and measures all bundles of a folder
show, cli   print and draw for people

trace, propagate, partition     programs: from a function to shardings of all its values
hardware, registry, hlo, workers, checks     foundations of the others
call, measure, audit     users of them: reshard arrays, price modules, report on compiled programs
"""
