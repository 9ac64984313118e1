"""DUSI by ctypes: structures, numbers and prototypes of ``dusi.h``, and what its statuses are in Python."""

import ctypes
import os
import socket
import struct
from ctypes import POINTER, byref, c_char_p, c_int, c_int32, c_int64, c_size_t, c_uint32, c_uint64, c_void_p
from typing import Any, Optional, Tuple

#: An address as the socket module has it: (host, port), of IPv6 with two numbers more.
Address = Tuple[Any, ...]

OK = 0
BAD_HANDLE = 2
DOORBELL_FULL = 69
EMPTY = 65
NOT_EMPTY = 66
DISCONNECTED = 71
SYSTEM = 76
NO_ENGINE = 72

STREAM = 1
NOTIFY = 1
NO_CHUNK = 0
EVENT_END = 1

COMPLETION, RECEIVED, _, ACCEPTED, CONNECTED, SENT, CLOSED = range(7)
OP_ACCEPT, OP_SEND, OP_LISTEN, OP_BIND, OP_CONNECT = 5, 7, 4, 3, 6
OP_SHUTDOWN, OP_SET_OPTION, OP_GET_OPTION = 10, 14, 15
OPT_NODELAY, OPT_LOCAL_ADDRESS, OPT_PEER_ADDRESS = 1, 12, 13


class Event(ctypes.Structure):
    """Dusi_Event."""

    _fields_ = [
        ("kind", c_uint32),
        ("status", c_int32),
        ("operation", c_uint32),
        ("flags", c_uint32),
        ("dti", c_uint64),
        ("cookie", c_uint64),
        ("chunk", c_uint64),
        ("data", c_void_p),
        ("length", c_uint64),
        ("position", c_uint64),
        ("value", c_uint64),
        ("address", c_uint64 * 3),
    ]


_PROTOTYPES = {
    "Open_Ual": [c_char_p, c_void_p, POINTER(c_uint64)],
    "Close_Ual": [c_uint64],
    "Create_Evq": [c_uint64, POINTER(c_uint64)],
    "Get_Evq_Fd": [c_uint64, POINTER(c_int)],
    "Arm_Evq": [c_uint64],
    "Disarm_Evq": [c_uint64],
    "Dequeue_Event": [c_uint64, POINTER(Event)],
    "Event_Address": [POINTER(Event), c_void_p, POINTER(c_uint32)],
    "Nop": [c_uint64, c_uint64],
    "Allocate_Memory": [c_uint64, c_size_t, c_uint32, POINTER(c_uint64), POINTER(c_void_p)],
    "Create_Dti": [c_uint64, c_uint32, c_uint64, c_uint64, c_uint32, POINTER(c_uint64)],
    "Bind": [c_uint64, c_char_p, c_uint32, c_uint64],
    "Listen": [c_uint64, c_uint32, c_uint64],
    "Accept": [c_uint64, c_uint64, c_uint64],
    "Connect": [c_uint64, c_char_p, c_uint32, c_uint32, c_uint64],
    "Send": [c_uint64, c_uint64, c_void_p, c_size_t, c_uint32, c_uint64],
    "Shutdown": [c_uint64, c_uint32, c_uint32, c_uint64],
    "Close": [c_uint64, c_uint64],
    "Abort": [c_uint64, c_uint64],
    "Set_Option": [c_uint64, c_uint32, c_uint64, c_uint32, c_uint64],
    "Get_Option": [c_uint64, c_uint32, c_uint64],
    "Return_Chunk": [c_uint64],
}


def _load() -> ctypes.CDLL:
    path = os.environ.get("SIDECORE_DUSI_LIBRARY", "libsidecore_dusi.so.0")
    library = ctypes.CDLL(path, use_errno=True)
    for name, arguments in _PROTOTYPES.items():
        function = getattr(library, "Dusi_" + name)
        function.argtypes, function.restype = arguments, c_int32
    library.Dusi_Status_String.argtypes, library.Dusi_Status_String.restype = [c_int32], c_char_p
    library.Dusi_Status_Errno.argtypes, library.Dusi_Status_Errno.restype = [c_int32], c_int
    return library


_library: Optional[ctypes.CDLL] = None


def library() -> ctypes.CDLL:
    """libsidecore_dusi, loaded at first use. The environment variable SIDECORE_DUSI_LIBRARY names another file."""
    global _library
    if _library is None:
        _library = _load()
    return _library


def error(status: int) -> OSError:
    """The exception for a status: an OSError, of the class that its errno has (ConnectionResetError and so on)."""
    own = ctypes.get_errno()
    number = own if status in (SYSTEM, NO_ENGINE) and own else library().Dusi_Status_Errno(status)
    return OSError(number, library().Dusi_Status_String(status).decode())


def check(status: int) -> None:
    """Raises what a status means, unless it is DUSI_OK."""
    if status != OK:
        raise error(status)


def pack(address: Address) -> bytes:
    """A struct sockaddr. Names are looked up, which may block."""
    host, port = address[0], address[1]
    found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    family, full = found[0][0], found[0][4]
    ip = socket.inet_pton(family, full[0].split("%")[0])
    head = struct.pack("=H", family) + struct.pack("!H", full[1])
    if family == socket.AF_INET:
        return head + ip + bytes(8)
    return head + struct.pack("!I", full[2]) + ip + struct.pack("=I", full[3])


def address_of(event: Event) -> Optional[Address]:
    """The address of an event, if it has one."""
    room = ctypes.create_string_buffer(128)
    length = c_uint32(128)
    if library().Dusi_Event_Address(byref(event), room, byref(length)) != OK:
        return None
    return unpack(room.raw[: length.value])


def unpack(raw: bytes) -> Optional[Address]:
    """An address from a struct sockaddr."""
    family = struct.unpack_from("=H", raw)[0]
    port = struct.unpack_from("!H", raw, 2)[0]
    if family == socket.AF_INET:
        return socket.inet_ntop(family, raw[4:8]), port
    if family == socket.AF_INET6:
        flow, scope = struct.unpack_from("!I", raw, 4)[0], struct.unpack_from("=I", raw, 24)[0]
        return socket.inet_ntop(family, raw[8:24]), port, flow, scope
    return None


__all__ = ["Address", "Event", "address_of", "byref", "c_int", "c_int64", "c_uint64", "c_void_p", "check", "error", "library", "pack", "unpack"]
