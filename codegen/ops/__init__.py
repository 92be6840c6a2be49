"""The operations of programs, one file for each family: their sharding rules, their text in
modules, and how they run on shards (`forms/`, with the text of each form in `form_texts/`)."""
