"""The forms of TPU kernels, one file each, beside a template of the same name. A file states its
form as `FORM`; `all_forms.py` finds it there."""
