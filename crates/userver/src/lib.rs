//! An event-driven web server whose I/O runs on the engine, epoll or io_uring.
