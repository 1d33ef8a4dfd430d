"""Random variates: words, gamma, discrete, categorical, sticks."""
