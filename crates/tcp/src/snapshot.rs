//! Live connections as values: for another process to take them over.
