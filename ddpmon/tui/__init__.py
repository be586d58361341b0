"""The dashboard. The only code that imports textual."""
