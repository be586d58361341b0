"""The screens and the dialogs over them."""
