//! The library tells what the driver knows, and refuses what it does not.
#![cfg(target_os = "linux")]

use std::ffi::{CStr, CString, c_char};
use std::process::Command;
use std::ptr::null_mut;

// The driver's library is built because these tests depend on it.
use pagewise_driver as _;
use pagewise_nvml::*;

const DRIVER: &str = "PAGEWISE_DRIVER_LIBRARY";

/// Runs a test in a process of its own, over a simulated driver with these options.
fn over_the_driver(test: &str, options: &str, body: impl FnOnce()) {
    if std::env::var_os(DRIVER).is_some() {
        return body();
    }
    let program = std::env::current_exe().expect("a test knows its path");
    let mut command = Command::new(&program);
    command.args(["--exact", test, "--nocapture"]).env("PAGEWISE_DRIVER", options);
    command.env(DRIVER, program.with_file_name("libpagewise_driver.so"));
    let output = command.output().expect("the test runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success() && text.contains("1 passed"), "{text}{errors}");
}

/// A text that a call writes.
fn text(call: impl FnOnce(*mut c_char, u32) -> i32) -> String {
    let mut room: [c_char; 96] = [0; 96];
    assert_eq!(call(room.as_mut_ptr(), 96), 0);
    // SAFETY: the call wrote a C string.
    unsafe { CStr::from_ptr(room.as_ptr()) }.to_str().expect("ASCII").to_owned()
}

#[test]
fn two_devices_have_names_ids_and_memory() {
    let options = "version=12.4 devices=2 memory=1GiB";
    over_the_driver("two_devices_have_names_ids_and_memory", options, || {
        assert_eq!(nvmlInit_v2(), 0);
        let (mut count, mut device, mut again) = (0, null_mut(), null_mut());
        let mut memory = Memory { total: 0, free: 0, used: 0 };
        // SAFETY: the places are writable, the texts are C strings.
        unsafe {
            assert_eq!((nvmlDeviceGetCount_v2(&raw mut count), count), (0, 2));
            assert_eq!(nvmlDeviceGetHandleByIndex_v2(1, &raw mut device), 0);
            assert!(
                text(|to, room| nvmlDeviceGetName(device, to, room))
                    .to_lowercase()
                    .contains("h200")
            );
            let uuid = text(|to, room| nvmlDeviceGetUUID(device, to, room));
            assert_eq!((uuid.len(), &uuid[..4]), (40, "GPU-"));
            let uuid = CString::new(uuid).expect("text");
            assert_eq!(nvmlDeviceGetHandleByUUID(uuid.as_ptr(), &raw mut again), 0);
            assert_eq!(again, device);
            let bare = CString::new(&uuid.as_bytes()[4..]).expect("text");
            again = std::ptr::null_mut();
            assert_eq!(nvmlDeviceGetHandleByUUID(bare.as_ptr(), &raw mut again), 0);
            assert_eq!(again, device, "without its prefix");
            let mut pci = PciInfo {
                bus_id_legacy: [0; 16],
                domain: 9,
                bus: 9,
                device: 9,
                pci_device_id: 9,
                pci_sub_system_id: 9,
                bus_id: [0; 32],
            };
            assert_eq!(nvmlDeviceGetPciInfo_v3(device, &raw mut pci), 0);
            let place = pci.bus_id.as_ptr().cast();
            assert_eq!(nvmlDeviceGetHandleByPciBusId_v2(place, &raw mut again), 0);
            assert_eq!(again, device);
            assert_eq!(nvmlDeviceGetMemoryInfo(device, &raw mut memory), 0);
            assert_eq!(memory.total, memory.free + memory.used);
            let mut version = 0;
            assert_eq!((nvmlSystemGetCudaDriverVersion_v2(&raw mut version), version), (0, 12040));
            assert_eq!(text(|to, room| nvmlSystemGetDriverVersion(to, room)), "550.54.14");
            let mut branch = DriverBranchInfo { version: 0x0100_0054, branch: [0; 80] };
            assert_eq!(nvmlSystemGetDriverBranch(&raw mut branch, 80), 0);
            let name = CStr::from_ptr(branch.branch.as_ptr());
            assert_eq!(name, c"r550_00");
            assert_eq!(nvmlSystemGetDriverBranch(&raw mut branch, 7), 7, "no room");
            branch.version = 1;
            assert_eq!(nvmlSystemGetDriverBranch(&raw mut branch, 80), 25);
            assert_eq!(nvmlSystemGetDriverBranch(std::ptr::null_mut(), 80), 2);
        }
        assert_eq!(nvmlShutdown(), 0);
    });
}

#[test]
fn calls_outside_of_a_use_are_refused() {
    over_the_driver("calls_outside_of_a_use_are_refused", "", || {
        let mut count = 7;
        // SAFETY: the place is writable.
        let mut counted = || unsafe { nvmlDeviceGetCount_v2(&raw mut count) };
        assert_eq!((counted(), nvmlShutdown()), (1, 1), "before the start");
        assert_eq!((nvmlInit_v2(), nvmlInit_v2(), nvmlShutdown()), (0, 0, 0));
        assert_eq!(counted(), 0, "one use is left");
        assert_eq!((nvmlShutdown(), counted(), nvmlShutdown()), (0, 1, 1), "after the last");
    });
}

#[test]
fn what_does_not_exist_is_refused() {
    over_the_driver("what_does_not_exist_is_refused", "", || {
        assert_eq!(nvmlInit_v2(), 0);
        let (mut device, mut name) = (null_mut(), [0; 4]);
        // SAFETY: places that are not null are writable, the texts are C strings.
        unsafe {
            assert_eq!(nvmlDeviceGetHandleByIndex_v2(1, &raw mut device), 2);
            assert_eq!(nvmlDeviceGetHandleByUUID(c"GPU-0".as_ptr(), &raw mut device), 6);
            assert_eq!(
                nvmlDeviceGetHandleByPciBusId_v2(c"FFFF:0:0.0".as_ptr(), &raw mut device),
                6
            );
            assert_eq!(nvmlDeviceGetHandleByPciBusId_v2(c"junk".as_ptr(), &raw mut device), 2);
            assert!(device.is_null(), "a refused call changes nothing");
            assert_eq!(nvmlDeviceGetName(null_mut(), name.as_mut_ptr(), 4), 2);
            assert_eq!(nvmlDeviceGetHandleByIndex_v2(0, &raw mut device), 0);
            assert_eq!(nvmlDeviceGetName(device, name.as_mut_ptr(), 4), 7, "no room");
            assert_eq!(nvmlDeviceGetMemoryInfo(device, null_mut()), 2);
            let mut memory = MemoryV2 { version: 1, total: 0, reserved: 0, free: 0, used: 0 };
            assert_eq!(nvmlDeviceGetMemoryInfo_v2(device, &raw mut memory), 25);
        }
    });
}
