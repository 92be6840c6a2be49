def format_program(p):
    return ""
