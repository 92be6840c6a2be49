"""Read compiled programs: HLO instructions, how often each runs, and the bytes that they move."""
