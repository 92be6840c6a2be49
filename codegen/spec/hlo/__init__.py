"""Read compiled programs: their HLO instructions, and the bytes that these move."""
