/* DUSI (Direct User Sockets Interface): the asynchronous interface of the ETA+AIO paper (Brecht et al., EuroSys 2006), over a Sidecore engine.
 *
 * This file is made from crates/capi/src by `cargo xtask header`. The guide is docs/c-api.md; each call has a man page.
 *
 * In short: every call answers a Dusi_Status. Calls on DTIs post an operation and return; what becomes of it is told by an event, on the queue that was
 * named when the DTI was created, with the cookie that was given to the call. Whatever handle is given, also none, garbage, one that was closed or one of
 * another kind, is answered DUSI_BAD_HANDLE. Pointers for results must not be NULL unless it is said that they may; on failure nothing is stored,
 * unless it is said otherwise. Any thread may make any call; see Dusi_Create_Evq for threads that share a queue, docs/c-api.md for what waits for what. In
 * a forked child, handles of its parent are answered DUSI_FORKED.
 */

#ifndef DUSI_H
#define DUSI_H

#include <stddef.h>
#include <stdint.h>
#include <sys/socket.h>

/* Version of this interface: major * 10000 + minor * 100 + patch. Dusi_Version() tells the library's. */
#define DUSI_VERSION 100

/* In place of any handle: none. */
#define DUSI_NULL_HANDLE 0

/* Bytes that one call can send from memory that is not registered. */
#define DUSI_COPY_MAX 256

/* Pieces of one vectored send or receive. */
#define DUSI_VECTOR_MAX 16

/* Dusi_Open_Ual: calls do not wake a sleeping engine; Dusi_Flush, or a call that waits, does it for all calls before. */
#define DUSI_MANUAL_FLUSH 1

/* Dusi_Create_Dti: received bytes go into posted buffers only; without one they wait in the engine, unannounced. */
#define DUSI_POSTED_ONLY 1

/* Send, shutdown, set option: an event is wanted when it is done. */
#define DUSI_NOTIFY 1

/* Send: the bytes (at most DUSI_COPY_MAX, of a region) are copied, and may be changed once DUSI_EVENT_COMPLETION came, at once. */
#define DUSI_COPY 4

/* Send: more follows at once, so a last segment that is not full may wait for it. */
#define DUSI_MORE 8

/* Send: these are the last bytes; the direction ends behind them. */
#define DUSI_FIN 32

/* Send, of a stream: what is sent up to here is urgent (RFC 9293, 3.8.5; MSG_OOB). It is sent in line. */
#define DUSI_URGENT 64

/* Receive: the buffer is done only when it is full, or the peer has ended its direction. */
#define DUSI_WAIT_ALL 64

/* Connect: TCP Fast Open (RFC 7413). What is sent at once may go with the SYN, and may then be delivered twice. */
#define DUSI_FAST_OPEN 128

/* Dusi_Shutdown: no more will be received. */
#define DUSI_SHUTDOWN_READ 1

/* Dusi_Shutdown: no more will be sent. */
#define DUSI_SHUTDOWN_WRITE 2

/* Dusi_Allocate_Memory: huge pages. */
#define DUSI_HUGE_PAGES 1

/* Dusi_Set_Evq_Signal: the signal goes to the calling thread, not to the process. */
#define DUSI_SIGNAL_THREAD 1

/* Flag of an event: the peer has ended its direction. No byte follows those of this event. */
#define DUSI_EVENT_END 1

/* Flag of an event: the operation failed; the event's status says why. */
#define DUSI_EVENT_FAILED 2

/*
 * What a call answers, and what became of an operation. Numbers never change; new ones may be added. Values below 64 come from the engine,
 * in events; those from 64 on come from the library, as answers of calls.
 */
enum Dusi_Status
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : int32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* Done, or (of a call that posts an operation) posted. */
  DUSI_OK = 0,
  /* The engine could make no sense of the operation: a value is out of range, or the operation is not for this kind of DTI. */
  DUSI_INVALID = 1,
  /* The handle names nothing: it is none, of another kind, or of something that is closed. */
  DUSI_BAD_HANDLE = 2,
  /* The bytes lie outside the memory that the handle names. */
  DUSI_BAD_EXTENT = 3,
  /* The DTI exists already. Only a broken library causes this. */
  DUSI_HANDLE_IN_USE = 4,
  /* The DTI is in a state in which this cannot be done: not connected, not bound, already listening. */
  DUSI_WRONG_STATE = 5,
  /* Address or port are in use. */
  DUSI_ADDRESS_IN_USE = 6,
  /* Not an address of this engine. */
  DUSI_ADDRESS_NOT_AVAILABLE = 7,
  /* The engine's policy forbids it. */
  DUSI_NOT_PERMITTED = 8,
  /* A quota of the UAL or a table of the engine is full. */
  DUSI_NO_RESOURCES = 9,
  /* A descriptor queue of the DTI is full: try again after a completion. */
  DUSI_QUEUE_FULL = 10,
  /* The peer refused the connection. */
  DUSI_CONNECTION_REFUSED = 11,
  /* The peer reset the connection. */
  DUSI_CONNECTION_RESET = 12,
  /* The connection, or the attempt at one, timed out. */
  DUSI_TIMED_OUT = 13,
  /* There is no way to the peer. */
  DUSI_UNREACHABLE = 14,
  /* The connection was aborted on this side. */
  DUSI_ABORTED = 15,
  /* The operation was cancelled, or its DTI closed, before it was done. */
  DUSI_CANCELLED = 16,
  /* The engine does not do that. */
  DUSI_NOT_SUPPORTED = 17,
  /* The datagram is larger than can be sent. */
  DUSI_MESSAGE_TOO_LARGE = 18,
  /* The UAL broke the rules of shared memory and is being closed. */
  DUSI_CONDEMNED = 19,
  /* An argument is out of range, a null pointer, or not aligned. */
  DUSI_BAD_ARGUMENT = 64,
  /* No event is there. */
  DUSI_EMPTY = 65,
  /* Events are there already, so nothing was armed. */
  DUSI_NOT_EMPTY = 66,
  /* Time was up before an event came. */
  DUSI_TIMEOUT = 67,
  /* Another thread sleeps on this event queue, or DTIs still use it. */
  DUSI_BUSY = 68,
  /* The doorbell queue is full and nothing was done: take events, then try again. */
  DUSI_DOORBELL_FULL = 69,
  /* As many of these exist as were granted. */
  DUSI_EXHAUSTED = 70,
  /* The engine has gone away, or the UAL was closed. Nothing more will happen in it. */
  DUSI_DISCONNECTED = 71,
  /* No engine answers at that path; errno says why. */
  DUSI_NO_ENGINE = 72,
  /* The engine and this library speak different versions of the interface. */
  DUSI_VERSION_MISMATCH = 73,
  /* The engine's answer makes no sense. */
  DUSI_PROTOCOL = 74,
  /* The handle belongs to the parent of this process: a forked child opens its own UAL. */
  DUSI_FORKED = 75,
  /* The system refused; errno says why. */
  DUSI_SYSTEM = 76,
  /* The library failed within itself. Please report it. */
  DUSI_INTERNAL = 77,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum Dusi_Status Dusi_Status;
#else
typedef int32_t Dusi_Status;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* Kinds of DTIs. */
enum Dusi_Dti_Type
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* TCP. */
  DUSI_STREAM = 1,
  /* UDP. */
  DUSI_DATAGRAM = 2,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum Dusi_Dti_Type Dusi_Dti_Type;
#else
typedef uint32_t Dusi_Dti_Type;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* What an event tells. */
enum Dusi_Event_Kind
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* An operation is done, or was refused: `operation` says which, `status` how it went. */
  DUSI_EVENT_COMPLETION = 0,
  /* Bytes came: `data` and `length` tell where they lie, `chunk` is to be returned. With DUSI_EVENT_END and no bytes there is no chunk. */
  DUSI_EVENT_RECEIVED = 1,
  /* The posted buffer with this cookie is done and holds `length` bytes; 0 and DUSI_EVENT_END when the peer has ended its direction. */
  DUSI_EVENT_RECEIVED_INTO = 2,
  /* A connection was accepted into `dti`, the child; the address is the peer's. */
  DUSI_EVENT_ACCEPTED = 3,
  /* Connected, or (see `status`) not; the address is the own one. */
  DUSI_EVENT_CONNECTED = 4,
  /* The peer has acknowledged all of the send with this cookie, and all sends of this DTI before it. */
  DUSI_EVENT_SENT = 5,
  /* The connection is over: DUSI_OK in good order, else why. The DTI still wants its Dusi_Close, if it had none. */
  DUSI_EVENT_CLOSED = 6,
  /* A datagram came, as DUSI_EVENT_RECEIVED; the address is the sender's. */
  DUSI_EVENT_DATAGRAM = 7,
  /* The memory registered with this cookie can be used, or (see `status`) not. */
  DUSI_EVENT_REGISTERED = 8,
  /* Connections wait at the listener, `value` of them, and no accept is posted. */
  DUSI_EVENT_INCOMING = 9,
  /* An error of a datagram DTI that ends nothing; the address is where the datagram was sent. */
  DUSI_EVENT_ERROR = 10,
  /* Fewer bytes wait unsent than DUSI_OPT_NOTSENT_LOWAT says. */
  DUSI_EVENT_WRITABLE = 11,
  /* The peer has urgent data, which ends at `position` in the stream. It comes in line. */
  DUSI_EVENT_URGENT = 12,
  /*
   * What became of a datagram (DUSI_OPT_RECEIVE_ERRORS); the address is where it was sent. At `data`: Linux's errno (4 bytes); who says so: 1 the engine, 2
   * ICMP, 3 ICMPv6; type and code of the ICMP message; 0, 4 or 6 for the version of the offender's address (1 byte each); the largest packet that would have
   * passed, or 0 (4 bytes); 4 bytes of 0; the offender's address, IPv4 as an IPv4-mapped one (16 bytes); then the datagram's first bytes.
   */
  DUSI_EVENT_ERROR_REPORT = 13,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum Dusi_Event_Kind Dusi_Event_Kind;
#else
typedef uint32_t Dusi_Event_Kind;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* What a DUSI_EVENT_COMPLETION answers. */
enum Dusi_Operation
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* Dusi_Nop. */
  DUSI_OP_NOP = 0,
  /* Dusi_Create_Dti of a stream (only when it failed). */
  DUSI_OP_CREATE_STREAM = 1,
  /* Dusi_Create_Dti of a datagram DTI (only when it failed). */
  DUSI_OP_CREATE_DATAGRAM = 2,
  /* Dusi_Bind; the address is the local one. */
  DUSI_OP_BIND = 3,
  /* Dusi_Listen; the address is the local one. */
  DUSI_OP_LISTEN = 4,
  /* Dusi_Accept (only when it failed). */
  DUSI_OP_ACCEPT = 5,
  /* Dusi_Connect of a datagram DTI, or one that was refused at once. */
  DUSI_OP_CONNECT = 6,
  /* A send that was copied, or that failed. */
  DUSI_OP_SEND = 7,
  /* A receive (only when it failed). */
  DUSI_OP_RECEIVE = 8,
  /* Dusi_Return_Chunk (only when it failed). */
  DUSI_OP_RETURN_CHUNKS = 9,
  /* Dusi_Shutdown. */
  DUSI_OP_SHUTDOWN = 10,
  /* Dusi_Close (only when it failed). */
  DUSI_OP_CLOSE = 11,
  /* Dusi_Abort (only when it failed). */
  DUSI_OP_ABORT = 12,
  /* Dusi_Cancel (only when it failed). */
  DUSI_OP_CANCEL = 13,
  /* Dusi_Set_Option. */
  DUSI_OP_SET_OPTION = 14,
  /* Dusi_Get_Option or Dusi_Get_Info; `value`, or the address, is the answer. */
  DUSI_OP_GET_OPTION = 15,
  /* Dusi_Deregister_Memory. */
  DUSI_OP_DEREGISTER = 16,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum Dusi_Operation Dusi_Operation;
#else
typedef uint32_t Dusi_Operation;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/* Options of a DTI. Values are 64-bit numbers; times are in microseconds. In brackets what Linux calls it. */
enum Dusi_Option
#if defined(__cplusplus) || __STDC_VERSION__ >= 202311L
  : uint32_t
#endif // defined(__cplusplus) || __STDC_VERSION__ >= 202311L
 {
  /* 1: small segments do not wait for acknowledgements (TCP_NODELAY). */
  DUSI_OPT_NODELAY = 1,
  /* 1: only full segments leave, until it is 0 again (TCP_CORK). */
  DUSI_OPT_CORK = 2,
  /* 1: probe an idle connection (SO_KEEPALIVE). */
  DUSI_OPT_KEEPALIVE = 3,
  /* Time before the first probe (TCP_KEEPIDLE). */
  DUSI_OPT_KEEPALIVE_IDLE = 4,
  /* Time between probes (TCP_KEEPINTVL). */
  DUSI_OPT_KEEPALIVE_INTERVAL = 5,
  /* Probes before the connection is given up (TCP_KEEPCNT). */
  DUSI_OPT_KEEPALIVE_PROBES = 6,
  /* How long data may stay unacknowledged; 0: the engine's default (TCP_USER_TIMEOUT). */
  DUSI_OPT_USER_TIMEOUT = 7,
  /* Bytes of receive buffer at most; 0: tuned (SO_RCVBUF). */
  DUSI_OPT_RECEIVE_BUFFER = 8,
  /* 0 NewReno, 1 CUBIC, 2 DCTCP, 3 BBR; before the connection opens (TCP_CONGESTION). */
  DUSI_OPT_CONGESTION = 9,
  /* How long data is kept trying after the close; UINT64_MAX: off; 0: the close resets (SO_LINGER). */
  DUSI_OPT_LINGER = 10,
  /* 1: acknowledge at once (TCP_QUICKACK). */
  DUSI_OPT_QUICKACK = 11,
  /* Read only: the own address (getsockname). */
  DUSI_OPT_LOCAL_ADDRESS = 12,
  /* Read only: the peer's address (getpeername). */
  DUSI_OPT_PEER_ADDRESS = 13,
  /* Unsent bytes below which DUSI_EVENT_WRITABLE comes; 0: never (TCP_NOTSENT_LOWAT). */
  DUSI_OPT_NOTSENT_LOWAT = 14,
  /* Bytes of the largest segment, 88 to 32767 (TCP_MAXSEG). */
  DUSI_OPT_MAX_SEGMENT = 15,
  /* How often a SYN is sent again, 1 to 127; 0: the engine's default (TCP_SYNCNT). */
  DUSI_OPT_SYN_RETRIES = 16,
  /* Bytes that the receive window never exceeds; 0: no limit (TCP_WINDOW_CLAMP). */
  DUSI_OPT_WINDOW_CLAMP = 17,
  /* How long FIN-WAIT-2 lasts after the close (TCP_LINGER2). */
  DUSI_OPT_FIN_WAIT2 = 18,
  /* Listener: accept when data came, or so long after the SYN (TCP_DEFER_ACCEPT). */
  DUSI_OPT_DEFER_ACCEPT = 19,
  /* Traffic class (IP_TOS, IPV6_TCLASS). */
  DUSI_OPT_TRAFFIC_CLASS = 20,
  /* Hop limit, 1 to 255; 0: the engine's default (IP_TTL, IPV6_UNICAST_HOPS). */
  DUSI_OPT_HOP_LIMIT = 21,
  /* 1: an IPv6 address takes nothing of IPv4 (IPV6_V6ONLY). */
  DUSI_OPT_V6ONLY = 22,
  /* ECN: 0 off, 1 where the peer asks, 2 asked for; before the connection opens. */
  DUSI_OPT_ECN = 23,
  /* Listener: how many connections may be open before their handshake ends; 0: none (TCP_FASTOPEN). */
  DUSI_OPT_FAST_OPEN = 24,
  /* Bytes a second at which data goes out at most; 0: the engine's default (SO_MAX_PACING_RATE). */
  DUSI_OPT_MAX_PACING_RATE = 26,
  /* Read only: where in the stream the peer's urgent data ends; 0: it told of none (SIOCATMARK). */
  DUSI_OPT_URGENT_MARK = 27,
  /* Datagrams to groups: hops, 0 to 255 (IP_MULTICAST_TTL, IPV6_MULTICAST_HOPS). */
  DUSI_OPT_MULTICAST_HOPS = 28,
  /* Datagrams to groups: 1: sockets of this engine get them, too (IP_MULTICAST_LOOP, IPV6_MULTICAST_LOOP). */
  DUSI_OPT_MULTICAST_LOOP = 29,
  /* Datagrams to groups: the IPv4 address that they come from, as a number; 0: the engine's choice (IP_MULTICAST_IF). */
  DUSI_OPT_MULTICAST_SOURCE = 30,
  /* Datagrams: 1: others that say so too may be bound to the same port; before it is bound (SO_REUSEADDR). */
  DUSI_OPT_REUSE_ADDRESS = 31,
  /* Datagrams: 1: each ICMP error is told by DUSI_EVENT_ERROR_REPORT (IP_RECVERR, IPV6_RECVERR). */
  DUSI_OPT_RECEIVE_ERRORS = 32,
  /* Datagrams: 0 to 3, whether routers may cut them (IP_MTU_DISCOVER). */
  DUSI_OPT_MTU_DISCOVERY = 33,
  /* Datagrams, read only: bytes of the largest packet that is known to pass to the connected peer (IP_MTU). */
  DUSI_OPT_PATH_MTU = 34,
};
#ifndef __cplusplus
#if __STDC_VERSION__ >= 202311L
typedef enum Dusi_Option Dusi_Option;
#else
typedef uint32_t Dusi_Option;
#endif // __STDC_VERSION__ >= 202311L
#endif // __cplusplus

/*
 * What a program wishes for when it opens a UAL. The engine's policy may grant less: Dusi_Get_Ual_Info tells. A field that is 0 stands for
 * the default in brackets.
 */
typedef struct {
  /* Bytes of this structure: sizeof (Dusi_Ual_Config). Must be set. */
  uint32_t size;
  /* 0 or DUSI_MANUAL_FLUSH. */
  uint32_t flags;
  /* Operations that fit into the doorbell queue, 32 to 65536, rounded up to a power of two [1024]. */
  uint32_t doorbell_depth;
  /* DTIs at a time, up to 4194304 [65536]. */
  uint32_t dtis;
  /* Event queues, 1 to 512 [8]. */
  uint32_t evqs;
  /* Events that fit into an event queue, 8 to 65536, rounded up to a power of two [4096]. */
  uint32_t evq_depth;
  /* Bytes of the receive pool [64 MiB]. */
  uint64_t pool_bytes;
  /* Microseconds for which a wait polls before it sleeps, plus 1; so 1 sleeps at once [6]. */
  uint32_t spin;
  /* Must be 0. */
  uint32_t reserved;
} Dusi_Ual_Config;

/* A user adaptation layer (UAL): what one process shares with an engine. 0 is never one. */
typedef uint64_t Dusi_Ual;

/* What was granted to a UAL. */
typedef struct {
  /* Operations that fit into the doorbell queue. */
  uint32_t doorbell_depth;
  /* DTIs at a time. */
  uint32_t dtis;
  /* Event queues at a time. */
  uint32_t evqs;
  /* Events that fit into an event queue. */
  uint32_t evq_depth;
  /* Bytes of the receive pool. */
  uint64_t pool_bytes;
  /* Which engine process this is: another number after a restart. */
  uint64_t epoch;
} Dusi_Ual_Info;

/* An event queue (EvQ) of a UAL. 0 is never one. */
typedef uint64_t Dusi_Evq;

/* A direct transport interface (DTI): a socket. 0 is never one. */
typedef uint64_t Dusi_Dti;

/* A piece of the receive pool that holds received bytes, until it is returned. 0 is never one: see DUSI_NO_CHUNK. */
typedef uint64_t Dusi_Chunk;

/* An event: the answer to an operation, or news from the network. */
typedef struct {
  /* What happened: one of Dusi_Event_Kind; others may be added. */
  uint32_t kind;
  /* How it went: one of Dusi_Status. */
  int32_t status;
  /* Of DUSI_EVENT_COMPLETION, what it answers: one of Dusi_Operation. */
  uint32_t operation;
  /* DUSI_EVENT_END, DUSI_EVENT_FAILED. */
  uint32_t flags;
  /* The DTI, or DUSI_NULL_HANDLE. */
  Dusi_Dti dti;
  /* The cookie of the call that this answers, or 0. */
  uint64_t cookie;
  /* What is to be given to Dusi_Return_Chunk when the bytes at `data` were used, or DUSI_NO_CHUNK. */
  Dusi_Chunk chunk;
  /* Received bytes, valid until the chunk is returned; else NULL. */
  const void *data;
  /* How many bytes were received. */
  uint64_t length;
  /* Where in the stream the bytes begin (or up to where they were acknowledged or sent), counted from 0. */
  uint64_t position;
  /* A number, by kind and operation. */
  uint64_t value;
  /* An address, if there is one: Dusi_Event_Address takes it out. */
  uint64_t address[3];
} Dusi_Event;

/* Registered memory of a UAL. 0 is never one: see DUSI_NO_REGION. */
typedef uint64_t Dusi_Region;

/* A piece of memory, of a vectored send or receive. */
typedef struct {
  /* The memory that the piece lies in; for sends also the chunk of an event. */
  Dusi_Region region;
  /* Its first byte. */
  void *data;
  /* Its bytes. */
  size_t length;
} Dusi_Buffer;

/* In place of a region: the bytes lie in any memory, and are copied (at most DUSI_COPY_MAX of them). */
#define DUSI_NO_REGION 0

/* In place of a chunk: the event holds none. */
#define DUSI_NO_CHUNK 0

#ifdef __cplusplus
extern "C" {
#endif // __cplusplus

/*
 * Tells the version of the library, as DUSI_VERSION tells that of the header.
 *
 * Blocking: no.
 */
uint32_t Dusi_Version(void);

/*
 * Says a status in words.
 *
 * The text is English, needs no freeing, and never changes. Numbers that are no status have a text, too. May be called in a signal handler and
 * after a fork.
 *
 * Parameters:
 * - `status`: one of Dusi_Status, from a call or an event.
 *
 * Blocking: no.
 */
const char *Dusi_Status_String(int32_t status);

/*
 * Says a status as the errno that a socket call would have given.
 *
 * For programs that map this interface to that of sockets: DUSI_CONNECTION_REFUSED is ECONNREFUSED, and so on; DUSI_OK is 0; numbers that are
 * no status are EIO. May be called in a signal handler and after a fork.
 *
 * Parameters:
 * - `status`: one of Dusi_Status, from a call or an event.
 *
 * Blocking: no.
 */
int Dusi_Status_Errno(int32_t status);

/*
 * Opens a UAL: connects to an engine, and maps the memory that is shared with it.
 *
 * A process may open several; each is a protection domain of its own, with its own doorbell queue, event queues, DTIs and memory. Threads that
 * are to have nothing to do with each other open one each.
 *
 * Parameters:
 * - `path`: of the engine's socket; NULL for the default, /run/sidecore.sock for root, else $XDG_RUNTIME_DIR/sidecore.sock.
 * - `config`: what is wished for; NULL for the defaults.
 * - `ual`: where the handle is stored. The caller owns it, and ends it by Dusi_Close_Ual.
 *
 * Blocking: until the engine's agent has answered.
 *
 * Statuses: DUSI_OK; DUSI_BAD_ARGUMENT; DUSI_NO_ENGINE (errno says why); DUSI_NOT_PERMITTED and DUSI_NO_RESOURCES, by the engine's policy;
 * DUSI_VERSION_MISMATCH; DUSI_PROTOCOL; DUSI_EXHAUSTED, with 512 UALs open; DUSI_SYSTEM (errno says why).
 *
 * Paper: Dusi_Open_Ual, section 5, with the depth of the doorbell queue and the number of DTIs.
 *
 * Pointers:
 * `path` and `config` are NULL or point to what their types say; `ual` is NULL or points to room for a handle.
 */
Dusi_Status Dusi_Open_Ual(const char *path,
                          const Dusi_Ual_Config *config,
                          Dusi_Ual *ual);

/*
 * Opens a UAL over a connected socket: of an engine in this process, or one that was passed on by another.
 *
 * As Dusi_Open_Ual else.
 *
 * Parameters:
 * - `socket`: a stream socket of AF_UNIX that is connected to an engine's agent. It is duplicated; the caller's own may be closed.
 * - `config`: what is wished for; NULL for the defaults.
 * - `ual`: where the handle is stored.
 *
 * Blocking: until the engine's agent has answered.
 *
 * Statuses: as Dusi_Open_Ual.
 *
 * Paper: Dusi_Open_Ual, section 5.
 *
 * Pointers:
 * `config` is NULL or points to a structure; `ual` is NULL or points to room for a handle.
 */
Dusi_Status Dusi_Open_Ual_On(int socket,
                             const Dusi_Ual_Config *config,
                             Dusi_Ual *ual);

/*
 * Closes a UAL, with everything in it.
 *
 * Connections that are still open are reset: close what is to end in good order by Dusi_Close before, and wait for DUSI_EVENT_CLOSED. Every handle of
 * the UAL means nothing from now on, and its memory is unmapped: what Dusi_Allocate_Memory gave, and received bytes. Threads that sleep
 * on its event queues wake with DUSI_DISCONNECTED.
 *
 * Parameters:
 * - `ual`: the UAL.
 *
 * Blocking: for threads that are just leaving a call.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_FORKED.
 *
 * Paper: not named there; the counterpart of Dusi_Open_Ual.
 */
Dusi_Status Dusi_Close_Ual(Dusi_Ual ual);

/*
 * Tells what was granted to a UAL.
 *
 * Parameters:
 * - `ual`: the UAL.
 * - `info`: where it is stored.
 * - `size`: sizeof (Dusi_Ual_Info); another number is refused.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_FORKED.
 *
 * Paper: not named there.
 *
 * Pointers:
 * `info` is NULL or points to room for a structure.
 */
Dusi_Status Dusi_Get_Ual_Info(Dusi_Ual ual, Dusi_Ual_Info *info, size_t size);

/*
 * Tells whether the engine still holds a UAL open.
 *
 * After DUSI_DISCONNECTED every connection of the UAL is lost. Close it, and open another when there is an engine again.
 *
 * Parameters:
 * - `ual`: the UAL.
 *
 * Blocking: no. A system call, as long as no thread has slept on an event queue.
 *
 * Statuses: DUSI_OK; DUSI_DISCONNECTED; DUSI_BAD_HANDLE; DUSI_FORKED.
 *
 * Paper: not named there.
 */
Dusi_Status Dusi_Check_Ual(Dusi_Ual ual);

/*
 * Makes a sleeping engine look at what was posted.
 *
 * Only needed with DUSI_MANUAL_FLUSH, where it is called once for many calls, and to give back chunks at once: they are gathered until the next
 * flush, or the next posting without DUSI_MANUAL_FLUSH. Calls that wait or arm do it by themselves.
 *
 * Parameters:
 * - `ual`: the UAL.
 *
 * Blocking: no. A system call, if the engine sleeps.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_FORKED.
 *
 * Paper: posting to the doorbell queue (DbQ), sections 4.1 and 5.
 */
Dusi_Status Dusi_Flush(Dusi_Ual ual);

/*
 * Tells how many operations can be posted for certain.
 *
 * While an event queue is full the engine reads no operations, so a loop that waits for room must take events meanwhile. One that keeps what it takes in a
 * list of its own, and works on it while there is room for what follows from one event, never meets DUSI_DOORBELL_FULL: see
 * examples/dusi_echo_server.c.
 *
 * Parameters:
 * - `ual`: the UAL.
 * - `room`: where the number is stored. With one posting thread it only grows until that thread posts.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_FORKED.
 *
 * Paper: not named there.
 *
 * Pointers:
 * `room` is NULL or points to room for a number.
 */
Dusi_Status Dusi_Get_Doorbell_Room(Dusi_Ual ual,
                                   uint32_t *room);

/*
 * Does nothing, and says so on an event queue.
 *
 * Its DUSI_EVENT_COMPLETION (DUSI_OP_NOP) tells that the engine has read everything that was posted before. It is also a way for one thread to wake
 * another that sleeps on the queue.
 *
 * Parameters:
 * - `evq`: where the event is to come.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_DOORBELL_FULL; DUSI_FORKED.
 *
 * Paper: not named there.
 */
Dusi_Status Dusi_Nop(Dusi_Evq evq,
                     uint64_t cookie);

/*
 * Takes the address out of an event.
 *
 * Which events have one, and whose it is, stands with their kinds. As getsockname(2), it stores as much as there is room for, and the whole
 * length in `length`. May be called in a signal handler and after a fork.
 *
 * Parameters:
 * - `event`: the event.
 * - `address`: where the address is stored: a struct sockaddr_in or sockaddr_in6. A struct sockaddr_storage holds both.
 * - `length`: the room there, in bytes; then the address's length.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_EMPTY if the event has no address; DUSI_BAD_ARGUMENT.
 *
 * Paper: not named there.
 *
 * Pointers:
 * `event` is NULL or points to an event; `length` is NULL or points to a length; `address` is NULL or points to so many bytes.
 */
Dusi_Status Dusi_Event_Address(const Dusi_Event *event,
                               struct sockaddr *address,
                               socklen_t *length);

/*
 * Makes memory, and registers it.
 *
 * It is zeroed, and shared with the engine, which reads it for sends and writes it for receives.
 *
 * Parameters:
 * - `ual`: the UAL.
 * - `length`: bytes, at least 1; rounded up to whole pages.
 * - `flags`: 0 or DUSI_HUGE_PAGES.
 * - `region`: where the handle is stored. The caller owns it, and ends it by Dusi_Deregister_Memory.
 * - `address`: where it is stored where the memory lies in this process; valid until it is deregistered, or the UAL is closed.
 *
 * Blocking: until the engine's agent has answered.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_NO_RESOURCES by the engine's policy; DUSI_DISCONNECTED; DUSI_SYSTEM (errno says why; with
 * DUSI_HUGE_PAGES, ENOMEM if too few are free); DUSI_FORKED.
 *
 * Paper: memory registration, section 5.
 *
 * Pointers:
 * `region` and `address` are NULL or point to room for what their types say.
 */
Dusi_Status Dusi_Allocate_Memory(Dusi_Ual ual,
                                 size_t length,
                                 uint32_t flags,
                                 Dusi_Region *region,
                                 void **address);

/*
 * Registers memory that the caller made.
 *
 * The engine's process must be able to map it, and nobody may be able to cut it short: so it must be a memfd (memfd_create(2) with
 * MFD_ALLOW_SEALING) with the seals F_SEAL_SHRINK and F_SEAL_GROW. It is mapped here a second time, writable if it may be; `data` of
 * sends and receives are addresses in that mapping. The descriptor stays the caller's, and may be closed.
 *
 * Parameters:
 * - `ual`: the UAL.
 * - `memfd`: the memory's descriptor.
 * - `region`: where the handle is stored. The caller owns it, and ends it by Dusi_Deregister_Memory.
 * - `address`: where it is stored where the memory lies in this process.
 * - `length`: where its bytes are stored; may be NULL.
 *
 * Blocking: until the engine's agent has answered.
 *
 * Statuses: as Dusi_Allocate_Memory; DUSI_BAD_ARGUMENT also if it is no memfd that is sealed so.
 *
 * Paper: memory registration, section 5.
 *
 * Pointers:
 * `region`, `address` and `length` are NULL or point to room for what their types say.
 */
Dusi_Status Dusi_Register_Memory(Dusi_Ual ual,
                                 int memfd,
                                 Dusi_Region *region,
                                 void **address,
                                 size_t *length);

/*
 * Registers memory without waiting until the engine has it.
 *
 * As Dusi_Register_Memory, but DUSI_EVENT_REGISTERED on the queue tells, with the cookie, when sends and receives may refer to the memory. Its bytes may
 * be read and written at once.
 *
 * Parameters:
 * - `ual`: the UAL.
 * - `memfd`: the memory's descriptor.
 * - `evq`: where the event is to come, of the same UAL.
 * - `cookie`: comes back with the event.
 * - `region`: where the handle is stored.
 * - `address`: where it is stored where the memory lies in this process.
 *
 * Blocking: for the answer of the engine's agent, which is another thread than the one that moves data.
 *
 * Statuses: as Dusi_Register_Memory.
 *
 * Paper: "a new, asynchronous version of the DUSI memory registration operation", wished for in section 6.4.
 *
 * Pointers:
 * `region` and `address` are NULL or point to room for what their types say.
 */
Dusi_Status Dusi_Register_Memory_Async(Dusi_Ual ual,
                                       int memfd,
                                       Dusi_Evq evq,
                                       uint64_t cookie,
                                       Dusi_Region *region,
                                       void **address);

/*
 * Copies a file into memory, and registers that.
 *
 * A file itself cannot be registered: anybody who may write it could cut it short while the engine reads. The copy does not follow later changes
 * of the file.
 *
 * Parameters:
 * - `ual`: the UAL.
 * - `path`: of the file.
 * - `region`: where the handle is stored. The caller owns it, and ends it by Dusi_Deregister_Memory.
 * - `address`: where it is stored where the copy lies in this process.
 * - `length`: where the file's length in bytes is stored.
 *
 * Blocking: for reading the file, and until the engine's agent has answered.
 *
 * Statuses: as Dusi_Allocate_Memory; DUSI_SYSTEM if the file cannot be read (errno says why).
 *
 * Paper: section 6.4, "the userver mmaps requested files and registers the mmap'd memory regions".
 *
 * Pointers:
 * `path` is NULL or points to a string; `region`, `address` and `length` are NULL or point to room for what their types say.
 */
Dusi_Status Dusi_Register_File(Dusi_Ual ual,
                               const char *path,
                               Dusi_Region *region,
                               void **address,
                               size_t *length);

/*
 * Gives memory back.
 *
 * The handle means nothing from now on, and the mapping that the library made is gone: the address must not be used any more. The engine keeps
 * its own as long as posted sends and receives refer to it; DUSI_EVENT_COMPLETION (DUSI_OP_DEREGISTER) tells when it has let go.
 *
 * Parameters:
 * - `region`: the memory.
 * - `evq`: where the event is to come, of the same UAL.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_DOORBELL_FULL; DUSI_FORKED.
 *
 * Paper: "until it is later unregistered by the application", section 6.4.
 */
Dusi_Status Dusi_Deregister_Memory(Dusi_Region region,
                                   Dusi_Evq evq,
                                   uint64_t cookie);

/*
 * Asks what the engine knows of a connection: Linux's struct tcp_info.
 *
 * The engine writes as much of it as fits into registered memory; DUSI_EVENT_COMPLETION (DUSI_OP_GET_OPTION) on the TX EvQ tells how many bytes, in
 * `value`.
 *
 * Parameters:
 * - `dti`: a stream DTI.
 * - `region`: the memory that it is to be written to.
 * - `data`: its first byte there.
 * - `length`: the room there; sizeof (struct tcp_info) of the caller's headers.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: as Dusi_Recv. In the event also DUSI_WRONG_STATE.
 *
 * Paper: missing in the prototype ("getsockopt"), footnote of section 6.4.
 */
Dusi_Status Dusi_Get_Info(Dusi_Dti dti,
                          Dusi_Region region,
                          void *data,
                          size_t length,
                          uint64_t cookie);

/*
 * Creates an event queue.
 *
 * DTIs name the queues that their events go to when they are made; any number of DTIs may share one. While a queue is full the engine keeps what
 * is for it, and reads no more operations of this UAL: so take events before you wait for room.
 *
 * One thread at a time may sleep on a queue. Other threads' calls on it are answered DUSI_BUSY meanwhile; without a sleeper any thread may take
 * events, and each event is taken once.
 *
 * Parameters:
 * - `ual`: the UAL.
 * - `evq`: where the handle is stored. The caller owns it, and ends it by Dusi_Destroy_Evq (or Dusi_Close_Ual).
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_EXHAUSTED if as many exist as were granted; DUSI_FORKED.
 *
 * Paper: sections 4.1 and 5, "The application creates Event Queues in the UAL".
 *
 * Pointers:
 * `evq` is NULL or points to room for a handle.
 */
Dusi_Status Dusi_Create_Evq(Dusi_Ual ual,
                            Dusi_Evq *evq);

/*
 * Destroys an event queue.
 *
 * Events that are still on it are dropped, and their chunks returned. It cannot be destroyed while DTIs name it (a DTI ends when it was closed and its
 * DUSI_EVENT_CLOSED was taken), nor while answers to Dusi_Nop, Dusi_Register_Memory_Async or Dusi_Deregister_Memory are still to come.
 *
 * Parameters:
 * - `evq`: the queue.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BUSY if it is in use, or slept on; DUSI_FORKED.
 *
 * Paper: not named there; the counterpart of creating one.
 */
Dusi_Status Dusi_Destroy_Evq(Dusi_Evq evq);

/*
 * Tells whether an event waits on a queue, and takes none.
 *
 * Parameters:
 * - `evq`: the queue.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK if there is one; DUSI_EMPTY; DUSI_BUSY; DUSI_BAD_HANDLE; DUSI_FORKED.
 *
 * Paper: section 5, "very efficient functions for polling EvQs".
 */
Dusi_Status Dusi_Poll_Evq(Dusi_Evq evq);

/*
 * Takes the next event from a queue.
 *
 * Parameters:
 * - `evq`: the queue.
 * - `event`: where it is stored. With a chunk in it, the caller owes a Dusi_Return_Chunk.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_EMPTY; DUSI_BUSY; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_FORKED.
 *
 * Paper: section 5, "dequeuing events".
 *
 * Pointers:
 * `event` is NULL or points to room for an event.
 */
Dusi_Status Dusi_Dequeue_Event(Dusi_Evq evq, Dusi_Event *event);

/*
 * Takes several events from a queue.
 *
 * Parameters:
 * - `evq`: the queue.
 * - `events`: where they are stored.
 * - `room`: how many fit there, at least 1.
 * - `count`: where it is stored how many there were; fewer than `room` when no more waited.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_EMPTY, with a count of 0; DUSI_BUSY; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_FORKED.
 *
 * Paper: section 5, "dequeuing events".
 *
 * Pointers:
 * `events` is NULL or points to room for `room` events; `count` is NULL or points to room for a number.
 */
Dusi_Status Dusi_Dequeue_Events(Dusi_Evq evq, Dusi_Event *events, size_t room, size_t *count);

/*
 * Tells how many events wait on a queue.
 *
 * Parameters:
 * - `evq`: the queue.
 * - `depth`: where the number is stored.
 *
 * Blocking: no. It looks at as many entries as log2 of the queue's size.
 *
 * Statuses: DUSI_OK; DUSI_BUSY; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_FORKED.
 *
 * Paper: section 5, "determining the EvQ event depth".
 *
 * Pointers:
 * `depth` is NULL or points to room for a number.
 */
Dusi_Status Dusi_Get_Evq_Depth(Dusi_Evq evq, size_t *depth);

/*
 * Sleeps until an event waits on a queue.
 *
 * It polls for a moment (Dusi_Set_Evq_Spin), then sleeps in the kernel. What was posted before is flushed first. Signals do not end the sleep; for
 * that, wait on the queue's descriptor (Dusi_Get_Evq_Fd). Events that came before the engine went away are told before DUSI_DISCONNECTED.
 *
 * Parameters:
 * - `evq`: the queue.
 * - `timeout`: microseconds; 0 only looks, a negative number sets no limit.
 *
 * Blocking: yes.
 *
 * Statuses: DUSI_OK if an event waits; DUSI_TIMEOUT; DUSI_DISCONNECTED; DUSI_BUSY if another thread sleeps on the queue; DUSI_BAD_HANDLE; DUSI_FORKED.
 *
 * Paper: section 5, "functions that allow an application to block on a single queue".
 */
Dusi_Status Dusi_Wait_Evq(Dusi_Evq evq,
                          int64_t timeout);

/*
 * Sleeps until an event waits on one of several queues of one UAL.
 *
 * As Dusi_Wait_Evq. Which queue has the event Dusi_Poll_Evq tells.
 *
 * Parameters:
 * - `evqs`: the queues, all of one UAL.
 * - `count`: how many, 1 to 512.
 * - `timeout`: microseconds; 0 only looks, a negative number sets no limit.
 *
 * Blocking: yes.
 *
 * Statuses: as Dusi_Wait_Evq; DUSI_BAD_ARGUMENT, also for queues of different UALs.
 *
 * Paper: section 5, blocking on several EvQs, for which the prototype had signals only.
 *
 * Pointers:
 * `evqs` is NULL or points to `count` handles.
 */
Dusi_Status Dusi_Wait_Evqs(const Dusi_Evq *evqs, size_t count, int64_t timeout);

/*
 * Sets how long a wait on a queue polls before it sleeps.
 *
 * Parameters:
 * - `evq`: the queue.
 * - `spin`: microseconds; 0 sleeps at once.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BUSY; DUSI_BAD_HANDLE; DUSI_FORKED.
 *
 * Paper: not named there.
 */
Dusi_Status Dusi_Set_Evq_Spin(Dusi_Evq evq, uint32_t spin);

/*
 * Gives a descriptor for epoll, poll or io_uring.
 *
 * It is readable after Dusi_Arm_Evq, when an event came or the engine went away. Watch it level-triggered for reading (EPOLLIN), and do
 * nothing else with it: it is the library's, and closed with the UAL.
 *
 * Parameters:
 * - `evq`: the queue.
 * - `fd`: where the descriptor is stored. It stays the same for the life of the queue.
 *
 * Blocking: the first time, until the engine's agent has answered.
 *
 * Statuses: DUSI_OK; DUSI_BUSY; DUSI_DISCONNECTED; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_SYSTEM (errno says why); DUSI_FORKED.
 *
 * Paper: not named there.
 *
 * Pointers:
 * `fd` is NULL or points to room for a descriptor's number.
 */
Dusi_Status Dusi_Get_Evq_Fd(Dusi_Evq evq,
                            int *fd);

/*
 * Associates a signal with an event queue.
 *
 * Once the queue is armed (Dusi_Arm_Evq), the kernel raises the signal when an event comes to the empty queue, or the engine goes away. The
 * same signal may be associated with several queues. Block it, and take it by sigwaitinfo(2) or sigtimedwait(2), or have a handler that sets
 * a flag: no other call of this library may be made in a signal handler. Of a real-time signal, si_fd is the queue's descriptor, and each
 * queue's is delivered; SIGIO comes instead if the kernel's list of pending signals is full.
 *
 * Parameters:
 * - `evq`: the queue.
 * - `signal`: the number of the signal; 0 ends the association.
 * - `flags`: 0, or DUSI_SIGNAL_THREAD: to the calling thread, not the process.
 *
 * Blocking: the first time, until the engine's agent has answered.
 *
 * Statuses: DUSI_OK; DUSI_BUSY; DUSI_DISCONNECTED; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_SYSTEM (errno says why); DUSI_FORKED.
 *
 * Paper: section 5, "A function is provided for associating a signal with an EvQ".
 */
Dusi_Status Dusi_Set_Evq_Signal(Dusi_Evq evq,
                                int signal,
                                uint32_t flags);

/*
 * Asks to be told by signal or descriptor when an event comes to an empty queue.
 *
 * What was posted before is flushed. Nothing is armed when events wait already: take them, and arm again. An armed queue tells once; call Dusi_Disarm_Evq
 * after the sleep, and before the next arming. Sometimes it tells of nothing: look whether there is an event.
 *
 * Parameters:
 * - `evq`: the queue.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK if it is armed; DUSI_NOT_EMPTY if events wait; DUSI_DISCONNECTED; DUSI_BUSY; DUSI_BAD_HANDLE; DUSI_FORKED.
 *
 * Paper: section 5, "it arms the corresponding signal(s)".
 */
Dusi_Status Dusi_Arm_Evq(Dusi_Evq evq);

/*
 * Takes Dusi_Arm_Evq back, and empties the descriptor.
 *
 * Does no harm to a queue that is not armed.
 *
 * Parameters:
 * - `evq`: the queue.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BUSY; DUSI_BAD_HANDLE; DUSI_FORKED.
 *
 * Paper: section 5, the counterpart of arming.
 */
Dusi_Status Dusi_Disarm_Evq(Dusi_Evq evq);

/*
 * Creates a DTI: a socket.
 *
 * It can be used at once; that there was no room for it at the engine is told by a DUSI_EVENT_COMPLETION that failed. The RX EvQ is told of what comes
 * in (accepts, received bytes, the end), the TX EvQ of what goes out (connects, sends, shutdowns) and of all other completions. Both may be the
 * same queue.
 *
 * A DTI is over when two things have happened, in either order: Dusi_Close (or Dusi_Abort) was called, and DUSI_EVENT_CLOSED was taken from its queue.
 *
 * Parameters:
 * - `ual`: the UAL.
 * - `type`: DUSI_STREAM or DUSI_DATAGRAM.
 * - `rx_evq`: the queue for what comes in, of the same UAL.
 * - `tx_evq`: the queue for what goes out, of the same UAL.
 * - `flags`: 0, or DUSI_POSTED_ONLY for a stream.
 * - `dti`: where the handle is stored. The caller owns it, and ends it by Dusi_Close or Dusi_Abort.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_EXHAUSTED if as many exist as were granted; DUSI_DOORBELL_FULL; DUSI_FORKED.
 *
 * Paper: section 5, "When an application creates a DTI socket, it associates two EvQs".
 *
 * Pointers:
 * `dti` is NULL or points to room for a handle.
 */
Dusi_Status Dusi_Create_Dti(Dusi_Ual ual,
                            uint32_t type,
                            Dusi_Evq rx_evq,
                            Dusi_Evq tx_evq,
                            uint32_t flags,
                            Dusi_Dti *dti);

/*
 * Tells the index of a DTI in its UAL's table, fit to index a table of the program's own.
 *
 * Indexes are below the number of DTIs that was granted, small ones first, and used again: compare the whole handle before you believe
 * that an event is for the present user of an index. Nothing is looked up: a handle that is closed has its index, too.
 *
 * Parameters:
 * - `dti`: the DTI.
 * - `index`: where it is stored.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT.
 *
 * Paper: not named there.
 *
 * Pointers:
 * `index` is NULL or points to room for a number.
 */
Dusi_Status Dusi_Get_Dti_Index(Dusi_Dti dti,
                               uint32_t *index);

/*
 * Binds a DTI to a local address.
 *
 * DUSI_EVENT_COMPLETION (DUSI_OP_BIND) comes to the TX EvQ, with the address.
 *
 * Parameters:
 * - `dti`: the DTI.
 * - `address`: a struct sockaddr_in or sockaddr_in6; port 0 stands for any free one.
 * - `length`: its bytes.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_ADDRESS_IN_USE,
 * DUSI_ADDRESS_NOT_AVAILABLE, DUSI_NOT_PERMITTED, DUSI_WRONG_STATE.
 *
 * Paper: section 5, "bind it to a TCP port address".
 *
 * Pointers:
 * `address` is NULL or points to `length` bytes.
 */
Dusi_Status Dusi_Bind(Dusi_Dti dti,
                      const struct sockaddr *address,
                      socklen_t length,
                      uint64_t cookie);

/*
 * Makes a bound stream DTI a listener.
 *
 * DUSI_EVENT_COMPLETION (DUSI_OP_LISTEN) comes to the TX EvQ, with the local address. Connections that find no accept posted wait, up to the
 * backlog; DUSI_EVENT_INCOMING tells when that begins.
 *
 * Parameters:
 * - `dti`: the DTI.
 * - `backlog`: connections that may wait.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_WRONG_STATE, DUSI_ADDRESS_IN_USE, DUSI_NO_RESOURCES.
 *
 * Paper: section 5, the "listen DTI socket".
 */
Dusi_Status Dusi_Listen(Dusi_Dti dti,
                        uint32_t backlog,
                        uint64_t cookie);

/*
 * Accepts one connection of a listener into a child that was created before.
 *
 * Any number of accepts may be outstanding. Receives may be posted on the child before, so that the first bytes find their buffer. DUSI_EVENT_ACCEPTED comes
 * to the RX EvQ of the listener, for the child, with the peer's address; the first receive completion of the child may come before it and can be
 * taken for it.
 *
 * Parameters:
 * - `listener`: the listening DTI.
 * - `child`: a stream DTI of the same UAL that is neither bound nor connected.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_WRONG_STATE, DUSI_CANCELLED.
 *
 * Paper: Dusi_Accept, sections 5, 6.3 and 6.4.
 */
Dusi_Status Dusi_Accept(Dusi_Dti listener,
                        Dusi_Dti child,
                        uint64_t cookie);

/*
 * Connects a DTI.
 *
 * DUSI_EVENT_CONNECTED comes to the TX EvQ, with the own address, or with the status that says why not. Sends may be posted at once. For a
 * datagram DTI it sets where sends without an address go, and whom it hears, and the event is DUSI_EVENT_COMPLETION (DUSI_OP_CONNECT); with AF_UNSPEC
 * it hears everybody again.
 *
 * Parameters:
 * - `dti`: the DTI.
 * - `address`: of the peer, a struct sockaddr_in or sockaddr_in6; of a datagram DTI also a struct sockaddr of AF_UNSPEC: none any more.
 * - `length`: its bytes.
 * - `flags`: 0 or DUSI_FAST_OPEN.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_CONNECTION_REFUSED,
 * DUSI_CONNECTION_RESET, DUSI_TIMED_OUT, DUSI_UNREACHABLE, DUSI_ADDRESS_NOT_AVAILABLE, DUSI_WRONG_STATE, DUSI_CANCELLED.
 *
 * Paper: section 5, "application initiated connections".
 *
 * Pointers:
 * `address` is NULL or points to `length` bytes.
 */
Dusi_Status Dusi_Connect(Dusi_Dti dti,
                         const struct sockaddr *address,
                         socklen_t length,
                         uint32_t flags,
                         uint64_t cookie);

/*
 * Ends one direction of a connection, or both.
 *
 * Sending ends behind all that was posted: the peer sees the end of the stream. With DUSI_NOTIFY, DUSI_EVENT_COMPLETION (DUSI_OP_SHUTDOWN) comes to the TX EvQ
 * when the peer has acknowledged it. What still comes in a direction that was ended for receiving is acknowledged and dropped.
 *
 * Parameters:
 * - `dti`: the DTI.
 * - `how`: DUSI_SHUTDOWN_READ, DUSI_SHUTDOWN_WRITE, or both.
 * - `flags`: 0 or DUSI_NOTIFY.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_WRONG_STATE, DUSI_CONNECTION_RESET.
 *
 * Paper: section 6.4, "posting a shutdown operation to the connection's TX descriptor queue".
 */
Dusi_Status Dusi_Shutdown(Dusi_Dti dti,
                          uint32_t how,
                          uint32_t flags,
                          uint64_t cookie);

/*
 * Closes a DTI in good order.
 *
 * What was posted for sending still goes out, and the end of the stream behind it; nothing more is received. Received bytes that were never taken make it a
 * reset (RFC 1122, 4.2.2.13). DUSI_EVENT_CLOSED comes to the RX EvQ when the connection is over. The handle means nothing to other calls from now
 * on (but for Dusi_Abort), and stands in the events that still come. Memory of sends stays the engine's until their completions, or that event.
 *
 * A DTI whose DUSI_EVENT_CLOSED came by itself (reset, timeout) is to be closed as well: until then its place stays taken.
 *
 * Parameters:
 * - `dti`: the DTI.
 * - `cookie`: comes back with the event, if it was not on its way already.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_DOORBELL_FULL; DUSI_FORKED.
 *
 * Paper: sections 6.2 and 6.4.
 */
Dusi_Status Dusi_Close(Dusi_Dti dti,
                       uint64_t cookie);

/*
 * Ends a DTI at once: the connection is reset, and what waits to be sent is dropped.
 *
 * It may follow Dusi_Close, to end the lingering. Otherwise as Dusi_Close.
 *
 * Parameters:
 * - `dti`: the DTI.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_DOORBELL_FULL; DUSI_FORKED.
 *
 * Paper: not named there.
 */
Dusi_Status Dusi_Abort(Dusi_Dti dti, uint64_t cookie);

/*
 * Cancels receives, accepts or a connect.
 *
 * Each that was posted on the DTI with this cookie, and is not done, answers with DUSI_CANCELLED.
 *
 * Parameters:
 * - `dti`: the DTI; for accepts the listener.
 * - `which`: the cookie of what is to be cancelled.
 * - `cookie`: comes back with the event if the cancelling itself fails.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_DOORBELL_FULL; DUSI_FORKED.
 *
 * Paper: not named there.
 */
Dusi_Status Dusi_Cancel(Dusi_Dti dti, uint64_t which, uint64_t cookie);

/*
 * Sets an option of a DTI.
 *
 * Options of a listener are those of its connections to come.
 *
 * Parameters:
 * - `dti`: the DTI.
 * - `option`: one of Dusi_Option.
 * - `value`: see there.
 * - `flags`: 0, or DUSI_NOTIFY for a DUSI_EVENT_COMPLETION (DUSI_OP_SET_OPTION) on the TX EvQ, which else comes only if it fails.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_INVALID, DUSI_WRONG_STATE,
 * DUSI_NOT_SUPPORTED.
 *
 * Paper: missing in the prototype ("most notably TCP_CORK"), footnote of section 6.4.
 */
Dusi_Status Dusi_Set_Option(Dusi_Dti dti,
                            uint32_t option,
                            uint64_t value,
                            uint32_t flags,
                            uint64_t cookie);

/*
 * Asks for an option of a DTI.
 *
 * DUSI_EVENT_COMPLETION (DUSI_OP_GET_OPTION) comes to the TX EvQ, with what is in force in `value`, or with the address.
 *
 * Parameters:
 * - `dti`: the DTI.
 * - `option`: one of Dusi_Option.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_ARGUMENT; DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_WRONG_STATE, DUSI_NOT_SUPPORTED.
 *
 * Paper: missing in the prototype, footnote of section 6.4.
 */
Dusi_Status Dusi_Get_Option(Dusi_Dti dti,
                            uint32_t option,
                            uint64_t cookie);

/*
 * Sends bytes.
 *
 * From registered memory they are not copied where the driver can gather: they must stay as they are until the peer has acknowledged them. With
 * DUSI_NOTIFY, DUSI_EVENT_SENT on the TX EvQ tells when that is so, for this send and all before it on the DTI. A send is never partial. Sends may be
 * posted before the connection is there, and as many as you like.
 *
 * Up to DUSI_COPY_MAX bytes can be sent from any memory with DUSI_NO_REGION in place of the region: they are copied before the call returns.
 * With that, or with DUSI_COPY, the event is DUSI_EVENT_COMPLETION (DUSI_OP_SEND), and comes at once.
 *
 * Received bytes can be sent on from where they lie: give the event's chunk in place of the region, and return the chunk when the send is done.
 *
 * Parameters:
 * - `dti`: the DTI.
 * - `region`: the memory that the bytes lie in, the chunk of an event, or DUSI_NO_REGION.
 * - `data`: the first byte.
 * - `length`: how many bytes; 0 only for a datagram.
 * - `flags`: any of DUSI_NOTIFY, DUSI_MORE, DUSI_FIN, DUSI_COPY, DUSI_URGENT.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_EXTENT if the bytes do not lie in the region; DUSI_BAD_ARGUMENT; DUSI_DOORBELL_FULL; DUSI_FORKED. In the
 * event also DUSI_WRONG_STATE, DUSI_QUEUE_FULL, DUSI_MESSAGE_TOO_LARGE, DUSI_NO_RESOURCES; what was sent and not acknowledged when a connection ends is told by
 * DUSI_EVENT_CLOSED.
 *
 * Paper: Dusi_Send, sections 5 and 6.4.
 *
 * Pointers:
 * With DUSI_NO_REGION, `data` is NULL or points to `length` bytes.
 */
Dusi_Status Dusi_Send(Dusi_Dti dti,
                      Dusi_Region region,
                      const void *data,
                      size_t length,
                      uint32_t flags,
                      uint64_t cookie);

/*
 * Sends one datagram to an address.
 *
 * As Dusi_Send; it counts as sent when it left.
 *
 * Parameters:
 * - `dti`: a datagram DTI.
 * - `region`: the memory that the bytes lie in, the chunk of an event, or DUSI_NO_REGION.
 * - `data`: the first byte.
 * - `length`: how many bytes.
 * - `address`: of the receiver, a struct sockaddr_in or sockaddr_in6.
 * - `address_length`: its bytes.
 * - `flags`: any of DUSI_NOTIFY, DUSI_COPY.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: as Dusi_Send; in the event also DUSI_UNREACHABLE.
 *
 * Paper: Dusi_Send, section 5; the prototype had TCP only.
 *
 * Pointers:
 * With DUSI_NO_REGION, `data` is NULL or points to `length` bytes. `address` is NULL or points to `address_length` bytes.
 */
Dusi_Status Dusi_Send_To(Dusi_Dti dti,
                         Dusi_Region region,
                         const void *data,
                         size_t length,
                         const struct sockaddr *address,
                         socklen_t address_length,
                         uint32_t flags,
                         uint64_t cookie);

/*
 * Sends several pieces of registered memory as one: a header and a file share segments.
 *
 * As one Dusi_Send: never partial, one event for all. The array may be forgotten when the call returns, the pieces not.
 *
 * Parameters:
 * - `dti`: a stream DTI.
 * - `buffers`: the pieces, each in a region of its own or the same, or in a chunk; empty ones are left out.
 * - `count`: how many, 1 to DUSI_VECTOR_MAX.
 * - `flags`: any of DUSI_NOTIFY, DUSI_MORE, DUSI_FIN.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: as Dusi_Send; DUSI_BAD_ARGUMENT also if all pieces are empty; DUSI_NOT_SUPPORTED for a datagram DTI.
 *
 * Paper: "Vectored sends and receives", section 5; "a list of pointers to the HTTP response header and the requested file data", section 6.4.
 *
 * Pointers:
 * `buffers` is NULL or points to `count` structures.
 */
Dusi_Status Dusi_Send_Vector(Dusi_Dti dti,
                             const Dusi_Buffer *buffers,
                             size_t count,
                             uint32_t flags,
                             uint64_t cookie);

/*
 * Posts a buffer for received bytes.
 *
 * Several may be outstanding; they are filled in order. DUSI_EVENT_RECEIVED_INTO on the RX EvQ tells how many bytes lie there: what had come, or with
 * DUSI_WAIT_ALL the whole buffer, unless the stream ended. When the peer has ended its direction, receives complete with a length of 0 and
 * DUSI_EVENT_END. Bytes that come while no buffer is posted come as DUSI_EVENT_RECEIVED, unless the DTI was created with DUSI_POSTED_ONLY: then they wait.
 *
 * The engine writes into the buffer until the event; what is in it before is undefined.
 *
 * Parameters:
 * - `dti`: a stream DTI, connected or not yet: also a child before its Dusi_Accept.
 * - `region`: the memory that the buffer lies in.
 * - `data`: its first byte.
 * - `length`: its bytes, at least 1.
 * - `flags`: 0 or DUSI_WAIT_ALL.
 * - `cookie`: comes back with the event.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_BAD_EXTENT if the buffer does not lie in the region, or the region cannot be written; DUSI_BAD_ARGUMENT;
 * DUSI_DOORBELL_FULL; DUSI_FORKED. In the event also DUSI_CANCELLED, DUSI_CONNECTION_RESET, DUSI_QUEUE_FULL, DUSI_WRONG_STATE.
 *
 * Paper: Dusi_Recv, sections 5 and 6.4.
 */
Dusi_Status Dusi_Recv(Dusi_Dti dti,
                      Dusi_Region region,
                      void *data,
                      size_t length,
                      uint32_t flags,
                      uint64_t cookie);

/*
 * Posts several buffers for received bytes: all, or none.
 *
 * They are filled in order, and each answers with a DUSI_EVENT_RECEIVED_INTO of its own, with the same cookie.
 *
 * Parameters:
 * - `dti`: a stream DTI, connected or not yet.
 * - `buffers`: the buffers.
 * - `count`: how many, 1 to DUSI_VECTOR_MAX.
 * - `flags`: 0 or DUSI_WAIT_ALL.
 * - `cookie`: comes back with the events.
 *
 * Blocking: no.
 *
 * Statuses: as Dusi_Recv.
 *
 * Paper: "Vectored sends and receives", section 5.
 *
 * Pointers:
 * `buffers` is NULL or points to `count` structures.
 */
Dusi_Status Dusi_Recv_Vector(Dusi_Dti dti, const Dusi_Buffer *buffers, size_t count, uint32_t flags, uint64_t cookie);

/*
 * Gives received bytes back.
 *
 * Until then the engine writes nothing over them, and counts them against the window of their connection: who keeps chunks slows down its own
 * peers. Each event holds one reference, so each is returned once. Returns are gathered and go out with the next posting, flush or wait.
 *
 * Parameters:
 * - `chunk`: of a DUSI_EVENT_RECEIVED or DUSI_EVENT_DATAGRAM. DUSI_NO_CHUNK is fine, and nothing is done.
 *
 * Blocking: no.
 *
 * Statuses: DUSI_OK; DUSI_BAD_HANDLE; DUSI_FORKED.
 *
 * Paper: not named there; received bytes that no buffer was posted for lie in the anonymous buffer pool.
 */
Dusi_Status Dusi_Return_Chunk(Dusi_Chunk chunk);

#ifdef __cplusplus
}  // extern "C"
#endif  // __cplusplus

#endif  /* DUSI_H */
