"""The operations of programs, one file per family: their sharding rules, their text in modules, and
how they run on shards (`forms/`, with the text of each form in `form_texts/`)."""
