//! The packet processing engine: polling loop, DTI queues, and the agent that opens UALs.
