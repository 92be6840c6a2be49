"""The stages of a reshard, in order:

spec        parses user input into a `Description`, and that into a `Reshard`
moves       makes a `Plan` from a `Reshard`: one exchange, or collectives of the basis
learn       fits layouts to the buffers that loaders return, and compares layouts
text        makes template contexts from a `Plan`, and renders them by `templates/`
checks      has the oracle, and the checks of modules that need no backend
backends    has one folder for each kind of module; `base` has the interface
operations  has one file for each kind of bundle: its files, plan, pages, verdict, price. Its
            folders `emit`, `verify`, `compile` and `measure` do the work for one bundle, and
            `bundles` for all bundles of a folder
show, cli   print and draw for people

trace, propagate, partition  make programs: from a function to shardings of all its values
hardware, ops, registry      have the facts on chips, on operations of programs, and on backends
call, audit                  reshard arrays, and report on compiled programs
"""
