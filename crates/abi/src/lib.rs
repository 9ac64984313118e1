//! The layout of everything that an application and the engine share in memory.
