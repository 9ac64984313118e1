//! Load generators, baselines and experiments.
