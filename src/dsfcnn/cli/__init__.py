"""The command ``dsfcnn``: one file a command, each a few lines over the library."""
