//! The handler of `SIGSEGV`, which reports faults on program's views and passes others on.
//!
//! A faulting thread may hold any lock of the program. So the handler calls only functions that are
//! safe in signal handlers: it writes a message of [`MESSAGE_BYTES`] to the machine's pipe, and
//! sleeps until a thread of the machine has answered.
//!
//! The handler is installed once and stays. The handler or action that was there before gets the
//! signals that are not the machine's.
#![allow(unsafe_code)]

use std::ffi::{c_int, c_void};
use std::io;
use std::os::fd::RawFd;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering};
use std::sync::{Mutex, PoisonError};

use super::fault::{Answer, Fault};
use super::{registry, sys};

/// An address, whether the access writes, and the waiting thread's word.
pub(super) const MESSAGE_BYTES: usize = 24;

const READS: u64 = 0;
const WRITES: u64 = 1;
const UNKNOWN: u64 = 2;

/// Values of a waiting thread's word.
const WAITING: u32 = 0;
const SERVED: u32 = 1;
const REFUSED: u32 = 2;

/// The action that was there before. Null until the handler is installed.
static PREVIOUS: AtomicPtr<libc::sigaction> = AtomicPtr::new(ptr::null_mut());
static INSTALLING: Mutex<()> = Mutex::new(());

/// Installs the handler, unless it was installed before.
pub(super) fn install() -> io::Result<()> {
    let _installing = INSTALLING.lock().unwrap_or_else(PoisonError::into_inner);
    if !PREVIOUS.load(Ordering::Acquire).is_null() {
        return Ok(());
    }
    // SAFETY: all bits zero is a `sigaction`: the default action, no flags, an empty set.
    let mut previous: libc::sigaction = unsafe { std::mem::zeroed() };
    // SAFETY: the call writes the present action to a `sigaction`, and changes nothing.
    sys::checked(unsafe { libc::sigaction(libc::SIGSEGV, ptr::null(), &raw mut previous) })?;
    // The handler finds it from its first run on.
    PREVIOUS.store(Box::into_raw(Box::new(previous)), Ordering::Release);
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = on_fault;
    // SAFETY: all bits zero is a `sigaction`.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_sigaction = handler as *const () as usize;
    // With a stack of its own where the program has one. A handler that is passed a signal may
    // fault itself.
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_NODEFER | libc::SA_RESTART;
    // SAFETY: the handler has the signature that `SA_SIGINFO` asks for, and calls only functions
    // that are safe in signal handlers, but for the program's own handler.
    sys::checked(unsafe { libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()) })
        .map(drop)
}

extern "C" fn on_fault(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the location of `errno` is the thread's own. The kernel gives a valid `siginfo_t`, in
    // which a `SIGSEGV` of the kernel has an address.
    let (errno, code, address) =
        unsafe { (*libc::__errno_location(), (*info).si_code, (*info).si_addr() as u64) };
    // Positive codes are the kernel's: an access, not a signal that a process sent.
    let machine = if code > 0 { registry::find(address, std::process::id()) } else { None };
    let answer = machine.map(|fd| ask(fd, address, context));
    // SAFETY: it is the thread's own.
    unsafe { *libc::__errno_location() = errno };
    if answer != Some(Answer::Served) {
        // SAFETY: the arguments are those that the kernel gave.
        unsafe { pass_on(signal, info, context) }
    }
}

/// Reports a fault, and waits for the answer.
fn ask(fd: RawFd, address: u64, context: *mut c_void) -> Answer {
    let word = AtomicU32::new(WAITING);
    let writes = match access_of(context) {
        Some(true) => WRITES,
        Some(false) => READS,
        None => UNKNOWN,
    };
    let message: [u64; 3] = [address, writes, (&raw const word).expose_provenance() as u64];
    loop {
        // SAFETY: `MESSAGE_BYTES` bytes are read from a value of that size. A pipe takes so few
        // bytes as a whole.
        let written = unsafe { libc::write(fd, message.as_ptr().cast(), MESSAGE_BYTES) };
        if usize::try_from(written) == Ok(MESSAGE_BYTES) {
            break;
        }
        // SAFETY: the location of `errno` is the thread's own.
        if unsafe { *libc::__errno_location() } != libc::EINTR {
            return Answer::Refused; // The machine is gone.
        }
    }
    loop {
        match word.load(Ordering::Acquire) {
            WAITING => futex(&raw const word, libc::FUTEX_WAIT, WAITING),
            SERVED => return Answer::Served,
            _ => return Answer::Refused,
        }
    }
}

/// Waits while a word has a value, or wakes the thread that waits on it.
fn futex(word: *const AtomicU32, operation: c_int, value: u32) {
    let operation = operation | libc::FUTEX_PRIVATE_FLAG;
    let forever: *const libc::timespec = ptr::null();
    // SAFETY: the kernel reads the word for a wait, and the caller of a wait has it on
    // its stack. For a wake it
    // takes the address as a number.
    unsafe { libc::syscall(libc::SYS_futex, word, operation, value, forever) };
}

/// A message of the handler.
pub(super) fn fault_of(message: &[u8; MESSAGE_BYTES]) -> Option<Fault> {
    let word = |at: usize| message[at..at + 8].try_into().map(u64::from_ne_bytes).ok();
    let writes = match word(8)? {
        READS => Some(false),
        WRITES => Some(true),
        _ => None,
    };
    Some(Fault { address: word(0)?, writes, waiter: word(16)? as usize })
}

/// Lets the thread that reported a fault go on.
pub(super) fn answer(fault: &Fault, answer: Answer) {
    let word: *const AtomicU32 = ptr::with_exposed_provenance(fault.waiter);
    let value = if answer == Answer::Served { SERVED } else { REFUSED };
    // SAFETY: the word is on the stack of the thread that sent the message, which stays in `ask`
    // until the word changes. Each fault is answered once.
    unsafe { (*word).store(value, Ordering::Release) };
    futex(word, libc::FUTEX_WAKE, 1);
}

/// Gives a signal to the action that was there before.
///
/// # Safety
/// The arguments are those that the kernel gave the handler.
unsafe fn pass_on(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the pointer is null or that of a leaked box, which does not change.
    let previous = unsafe { PREVIOUS.load(Ordering::Acquire).as_ref() };
    // SAFETY: the caller promised a valid `siginfo_t`.
    let is_sent = unsafe { (*info).si_code } <= 0;
    match previous {
        Some(action) if action.sa_sigaction == libc::SIG_IGN && is_sent => {}
        Some(action) if ![libc::SIG_DFL, libc::SIG_IGN].contains(&action.sa_sigaction) => {
            let handler = action.sa_sigaction as *const ();
            if action.sa_flags & libc::SA_SIGINFO != 0 {
                // SAFETY: with this flag the program gave a function of this signature.
                let handler = unsafe {
                    std::mem::transmute::<
                        *const (),
                        extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void),
                    >(handler)
                };
                handler(signal, info, context);
            } else {
                // SAFETY: without the flag the program gave a function of this signature.
                let handler =
                    unsafe { std::mem::transmute::<*const (), extern "C" fn(c_int)>(handler) };
                handler(signal);
            }
        }
        _ => {
            // SAFETY: all bits zero is a `sigaction` of the default action, which ends the process:
            // by the access, which is made again, or by the signal that is sent again.
            unsafe {
                let default: libc::sigaction = std::mem::zeroed();
                libc::sigaction(signal, &raw const default, ptr::null_mut());
                if is_sent {
                    libc::raise(signal);
                }
            }
        }
    }
}

/// Whether the access that faulted writes.
#[cfg(target_arch = "x86_64")]
fn access_of(context: *mut c_void) -> Option<bool> {
    /// The bit of the page fault's error code for writes.
    const WRITE: i64 = 1 << 1;
    let context: *const libc::ucontext_t = context.cast_const().cast();
    // SAFETY: the kernel gives a handler with `SA_SIGINFO` a valid context.
    let code = unsafe { (*context).uc_mcontext.gregs[libc::REG_ERR as usize] };
    Some(code & WRITE != 0)
}

/// Whether the access that faulted writes: bit 6 of the exception syndrome, which stands in a record
/// behind the registers.
#[cfg(target_arch = "aarch64")]
fn access_of(context: *mut c_void) -> Option<bool> {
    const ESR_MAGIC: u32 = 0x4553_5201;
    const RECORDS_BYTES: usize = 4096;
    const WRITE: u64 = 1 << 6;
    let context: *const libc::ucontext_t = context.cast_const().cast();
    // SAFETY: the kernel gives a handler with `SA_SIGINFO` a valid context. Records of two words,
    // magic and size, begin behind the processor state at a multiple of 16 bytes. The last has
    // magic 0, and all lie within 4096 bytes.
    unsafe {
        let state = &raw const (*context).uc_mcontext.pstate;
        let behind = state.add(1).cast::<u8>();
        let records = behind.add(behind.align_offset(16));
        let mut at = 0_usize;
        while at < RECORDS_BYTES - 16 {
            let record = records.add(at).cast::<u32>();
            let (magic, size) = (record.read(), record.add(1).read() as usize);
            match magic {
                0 => return None,
                ESR_MAGIC => return Some(record.add(2).cast::<u64>().read() & WRITE != 0),
                _ if size == 0 => return None,
                _ => at += size,
            }
        }
    }
    None
}
