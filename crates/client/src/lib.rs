//! The application's side: UAL, DTI, EvQ; blocking sockets and futures on top.
