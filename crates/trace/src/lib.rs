//! Recordings of CUDA managed memory.
