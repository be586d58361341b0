"""The dashboard, which is the only code that imports textual."""
