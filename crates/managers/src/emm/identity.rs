//! The name of a device that processes of one machine share.

use std::fmt;

use pagewise::{Device, DeviceAttribute, Error, ErrorKind, Machine, Result};

/// The place of a device on the machine's PCI, which names it for every process. An ordinal does
/// not: `CUDA_VISIBLE_DEVICES` gives each process an order of its own.
///
/// It is the name by which CUDA Python tells devices apart, too. The slices of a divided GPU (MIG)
/// have one place; the driver opens no memory of one slice in another, so that nothing depends on
/// which of them is found.
///
/// ```
/// use pagewise::{Device, Machine};
/// use pagewise_managers::emm::DeviceIdentity;
///
/// let machine = Machine::from(pagewise::sim()?);
/// let identity = DeviceIdentity::of(&machine, Device::FIRST)?;
/// assert_eq!(identity.to_string(), "0000:01:00");
/// assert_eq!(identity.find(&machine)?, Device::FIRST);
/// # Ok::<(), pagewise::Error>(())
/// ```
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
pub struct DeviceIdentity {
    /// The domain of its bus.
    pub pci_domain_id: i32,
    /// Its bus.
    pub pci_bus_id: i32,
    /// Its number on the bus.
    pub pci_device_id: i32,
}

impl DeviceIdentity {
    /// The identity of a device.
    ///
    /// # Errors
    /// `InvalidDevice` (no CUDA code) for a device that does not exist; as
    /// [`Backend::device_attribute`](pagewise::Backend::device_attribute).
    pub fn of(machine: &Machine, device: Device) -> Result<Self> {
        machine.check_device("device_identity", device)?;
        let ask = |attribute| machine.backend().device_attribute(device.id(), attribute);
        Ok(Self {
            pci_domain_id: ask(DeviceAttribute::PCI_DOMAIN_ID)?,
            pci_bus_id: ask(DeviceAttribute::PCI_BUS_ID)?,
            pci_device_id: ask(DeviceAttribute::PCI_DEVICE_ID)?,
        })
    }

    /// The device, by the number that this process knows it by.
    ///
    /// # Errors
    /// `InvalidDevice` (no CUDA code) if this process sees no such device; as [`of`](Self::of).
    pub fn find(self, machine: &Machine) -> Result<Device> {
        for device in machine.devices()? {
            if Self::of(machine, device)? == self {
                return Ok(device);
            }
        }
        let why = format!("this process sees no device {self}: see CUDA_VISIBLE_DEVICES");
        Err(Error::new("device_identity", ErrorKind::InvalidDevice).with_detail(why))
    }
}

/// As `domain:bus:device`, in hexadecimal digits.
impl fmt::Display for DeviceIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { pci_domain_id, pci_bus_id, pci_device_id } = self;
        write!(f, "{pci_domain_id:04x}:{pci_bus_id:02x}:{pci_device_id:02x}")
    }
}
