"""Random variates on any device: keys and words, gamma, discrete, categorical, sticks."""
