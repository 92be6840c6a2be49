"""Read compiled programs: their HLO instructions, and the bytes that the instructions move."""
