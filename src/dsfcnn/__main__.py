"""``python -m dsfcnn`` is the command ``dsfcnn``."""

from dsfcnn.cli.main import main

main()
