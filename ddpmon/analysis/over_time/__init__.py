"""Every rank through the whole run, in bounded memory."""
