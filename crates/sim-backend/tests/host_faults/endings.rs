//! Accesses that are not allowed, in processes of their own, because they end there.

use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output};
use std::ptr;
use std::sync::atomic::{AtomicU64, Ordering};

use pagewise_hal::{AttachFlags, Backend, BackendExt, Code, DeviceAccess};
use pagewise_sim::{HostFaults, SimBackend, SimConfig};

use crate::common::{DEVICE, PAGE, device, machine, mechanisms, peek, poke};

/// Which ending a process of its own is to come to, and the mechanism.
const ENDING: &str = "PAGEWISE_TEST_ENDING";

/// Comes to an ending, in a process of its own that has `--exact NAME` and the variable.
fn run(name: &str, ending: &str) -> Output {
    let this = std::env::current_exe().expect("this program");
    let mut command = Command::new(this);
    command.args(["--exact", name, "--nocapture"]).env(ENDING, ending);
    command.output().expect("a process")
}

/// The mechanism that this process is to use, if it is one of [`run`].
fn ending() -> Option<(String, HostFaults)> {
    let text = std::env::var(ENDING).ok()?;
    let (name, mechanism) = text.rsplit_once(' ')?;
    let faults = match mechanism {
        "Userfaultfd" => HostFaults::Userfaultfd,
        _ => HostFaults::PageProtection,
    };
    Some((name.to_string(), faults))
}

/// Accesses that the host may not make.
fn forbidden(name: &str, sim: &SimBackend) {
    match name {
        "device memory" => drop(peek(sim.alloc_device(DEVICE, 4096).unwrap().0)),
        "written device memory" => poke(sim.alloc_device(DEVICE, 4096).unwrap().0, 1),
        "freed memory" => {
            let span = sim.alloc(4 << 20).unwrap();
            poke(span.ptr.0, 1);
            // SAFETY: no code has the memory but the access below, which is to fault.
            unsafe { sim.free(span.ptr) }.unwrap();
            peek(span.ptr.0);
        }
        "memory never given" => {
            let span = sim.alloc(4 << 20).unwrap();
            peek(span.ptr.0 + (64 << 20));
        }
        _ => unreachable!("{name} is no ending"),
    }
}

#[test]
fn accesses_without_permission_end_in_a_segmentation_fault() {
    const NAME: &str = "endings::accesses_without_permission_end_in_a_segmentation_fault";
    if let Some((name, faults)) = ending() {
        let sim = machine(SimConfig::h200().host_faults(faults));
        println!("reached");
        forbidden(&name, &sim);
        println!("passed");
        return;
    }
    let names = ["device memory", "written device memory", "freed memory", "memory never given"];
    for faults in mechanisms() {
        for name in names {
            let run = run(NAME, &format!("{name} {faults:?}"));
            let text = String::from_utf8_lossy(&run.stdout).into_owned();
            assert_eq!(run.status.signal(), Some(libc::SIGSEGV), "{name}, {faults:?}: {text}");
            assert!(text.contains("reached") && !text.contains("passed"), "{name}: {text}");
        }
    }
}

/// The address of the last fault that the program's own handler saw.
static SEEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn own_handler(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: the kernel gives a valid `siginfo_t`, in which a `SIGSEGV` has an address. The page is
    // made accessible, so that the access succeeds when it is made again.
    unsafe {
        let address = (*info).si_addr() as u64;
        SEEN.store(address, Ordering::SeqCst);
        let page = ptr::with_exposed_provenance_mut((address / PAGE * PAGE) as usize);
        libc::mprotect(page, PAGE as usize, libc::PROT_READ | libc::PROT_WRITE);
    }
}

fn install_own_handler() {
    // SAFETY: all bits zero is a `sigaction`, and the handler has the signature of `SA_SIGINFO`.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        let handler: extern "C" fn(i32, *mut libc::siginfo_t, *mut libc::c_void) = own_handler;
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO;
        assert_eq!(libc::sigaction(libc::SIGSEGV, &raw const action, ptr::null_mut()), 0);
    }
}

#[test]
fn a_handler_of_the_program_gets_its_faults_and_no_others() {
    const NAME: &str = "endings::a_handler_of_the_program_gets_its_faults_and_no_others";
    if let Some((_, faults)) = ending() {
        install_own_handler();
        let sim = machine(SimConfig::h200().host_faults(faults));
        let span = sim.alloc(2 << 20).unwrap();
        poke(span.ptr.0, 3);
        assert_eq!(SEEN.load(Ordering::SeqCst), 0, "managed memory is the machine's");
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: the kernel chooses addresses that are free.
        let own =
            unsafe { libc::mmap(ptr::null_mut(), PAGE as usize, libc::PROT_NONE, flags, -1, 0) };
        poke(own as u64 + 5, 7);
        assert_eq!(SEEN.load(Ordering::SeqCst), own as u64 + 5);
        device(&sim, span, DeviceAccess::Write(4));
        assert_eq!((peek(span.ptr.0), peek(own as u64 + 5)), (4, 7));
        assert_eq!(SEEN.load(Ordering::SeqCst), own as u64 + 5, "and still is");
        return;
    }
    for faults in mechanisms() {
        let run = run(NAME, &format!("handler {faults:?}"));
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success() && text.contains("1 passed"), "{faults:?}: {text}{run:?}");
    }
}

/// Runs code in a child of this process; returns the child's exit status, or minus its signal.
fn in_child(code: impl FnOnce() -> i32) -> i32 {
    // SAFETY: the child runs code of this test alone and ends without destructors.
    match unsafe { libc::fork() } {
        0 => {
            let status = code();
            // SAFETY: the call does not return.
            unsafe { libc::_exit(status) }
        }
        child => {
            let mut status = 0;
            // SAFETY: the child is one of this process, and the status is written to a number.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            if libc::WIFSIGNALED(status) {
                -libc::WTERMSIG(status)
            } else {
                libc::WEXITSTATUS(status)
            }
        }
    }
}

#[test]
fn a_child_has_neither_the_machine_nor_its_memory() {
    const NAME: &str = "endings::a_child_has_neither_the_machine_nor_its_memory";
    if let Some((_, faults)) = ending() {
        let sim = machine(SimConfig::h200().host_faults(faults));
        let span = sim.alloc(2 << 20).unwrap();
        poke(span.ptr.0, 3);
        let refused = in_child(|| {
            let error = sim.alloc_managed(4096, AttachFlags::GLOBAL).unwrap_err();
            error.code().unwrap_or(-1)
        });
        assert_eq!(refused, Code::NOT_INITIALIZED);
        assert_eq!(in_child(|| peek(span.ptr.0).into()), -libc::SIGSEGV);
        device(&sim, span, DeviceAccess::AtomicAdd);
        assert_eq!(peek(span.ptr.0), 4, "the parent's machine lives on");
        let made_there = in_child(|| {
            let sim = machine(SimConfig::h200().host_faults(faults));
            let span = sim.alloc(2 << 20).unwrap();
            poke(span.ptr.0, 5);
            peek(span.ptr.0).into()
        });
        assert_eq!(made_there, 5, "a child makes a machine of its own");
        return;
    }
    for faults in mechanisms() {
        let run = run(NAME, &format!("child {faults:?}"));
        let text = String::from_utf8_lossy(&run.stdout).into_owned();
        assert!(run.status.success() && text.contains("1 passed"), "{faults:?}: {text}{run:?}");
    }
}
