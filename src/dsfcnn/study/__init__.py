"""What equivariance buys: figures and comparisons."""
