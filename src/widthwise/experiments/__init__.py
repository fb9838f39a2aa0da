"""The paper's experiments: what each trains at every scale, and what its runs say about the paper's claims."""
