"""Parse texts into meshes, shardings, shapes and layouts; errors have a caret under the mistake."""
