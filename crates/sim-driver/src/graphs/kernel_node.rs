//! Nodes that launch kernels.

use std::collections::BTreeMap;
use std::ffi::c_int;
use std::sync::Arc;

use pagewise_hal::Code;

use crate::kernel_launch::Launch;
use crate::outcome::Outcome;

/// The value of an attribute (`CUkernelNodeAttrValue`).
pub(crate) type AttributeValue = [u32; 16];

/// `CU_LAUNCH_ATTRIBUTE_COOPERATIVE`
const COOPERATIVE: c_int = 2;
/// `CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`
const CLUSTER: c_int = 4;

/// `CU_LAUNCH_ATTRIBUTE_MEM_SYNC_DOMAIN_MAP`
const DOMAINS: c_int = 9;
/// `CU_LAUNCH_ATTRIBUTE_DEVICE_UPDATABLE_KERNEL_NODE`
const UPDATABLE: c_int = 13;

/// `CU_LAUNCH_ATTRIBUTE_PRIORITY`
const PRIORITY: c_int = 8;
/// `CU_LAUNCH_ATTRIBUTE_PREFERRED_SHARED_MEMORY_CARVEOUT`, in percent; -1 for none
const CARVEOUT: c_int = 14;
/// The least and the greatest priority, to which a node's is limited.
const PRIORITIES: [i32; 2] = [0, -5];

/// The handles of a kernel.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Named {
    /// The function in the context.
    pub(crate) function: usize,
    /// The kernel of a library, or 0.
    pub(crate) kernel: usize,
    /// The context in which the kernel runs.
    pub(crate) context: usize,
}

/// A node that launches a kernel.
#[derive(Debug, Clone)]
pub(crate) struct KernelNode {
    pub(crate) launch: Launch,
    pub(crate) named: Named,
    arguments: Arc<Arguments>,
    /// Attributes that the simulator keeps and makes nothing of.
    hints: BTreeMap<c_int, AttributeValue>,
}

impl KernelNode {
    /// A node of a launch. Arguments in a buffer are given as one.
    pub(crate) fn new(launch: Launch, named: Named, are_in_buffer: bool) -> Self {
        let arguments = Arc::new(Arguments::new(&launch, are_in_buffer));
        Self { launch, named, arguments, hints: BTreeMap::new() }
    }

    /// The node with the attributes of another one.
    pub(crate) fn with_attributes_of(mut self, other: &Self) -> Self {
        self.launch.request.is_cooperative = other.launch.request.is_cooperative;
        self.launch.request.cluster = other.launch.request.cluster;
        self.hints.clone_from(&other.hints);
        self
    }

    /// The addresses of two arrays as a launch takes them: of an address for each argument, and of a
    /// buffer. One is 0, or both without arguments. They stay until the node is gone or has other
    /// parameters.
    pub(crate) fn arguments(&self) -> (usize, usize) {
        let Arguments { places, buffer, .. } = &*self.arguments;
        match buffer {
            _ if places.is_empty() => (0, 0),
            Some(buffer) => (0, buffer.as_ptr().expose_provenance()),
            None => (places.as_ptr().expose_provenance(), 0),
        }
    }

    /// An attribute: its value, and how many bytes of it mean something.
    ///
    /// # Errors
    /// `CUDA_ERROR_INVALID_VALUE` for one that nodes do not have.
    pub(crate) fn attribute(&self, id: c_int) -> Outcome<(AttributeValue, usize)> {
        let bytes = bytes(id).ok_or(Code::INVALID_VALUE)?;
        let mut value = [0; 16];
        match id {
            COOPERATIVE => value[0] = self.launch.request.is_cooperative.into(),
            CLUSTER => {
                let cluster = self.launch.request.cluster.unwrap_or_default();
                [value[0], value[1], value[2]] = cluster;
            }
            // Bytes 0 and 1 are the domains that the default and the remote domain stand for.
            DOMAINS => value[0] = u32::from_le_bytes([0, 1, 0, 0]),
            _ => {}
        }
        Ok((self.hints.get(&id).copied().unwrap_or(value), bytes))
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// `CUDA_ERROR_NOT_SUPPORTED` for a node that devices may change; `CUDA_ERROR_INVALID_VALUE` for
    /// a share of shared memory beyond all of it; as
    /// [`attribute`](Self::attribute).
    pub(crate) fn set_attribute(&mut self, id: c_int, value: AttributeValue) -> Outcome {
        let request = &mut self.launch.request;
        match id {
            COOPERATIVE => {
                request.is_cooperative = value[0] != 0;
                self.hints.insert(id, value);
            }
            PRIORITY => {
                let [least, greatest] = PRIORITIES;
                let priority = value[0].cast_signed().clamp(greatest, least).cast_unsigned();
                self.hints.insert(id, [priority; 16]);
            }
            CARVEOUT if value[0] > 100 && value[0] != u32::MAX => return Err(Code::INVALID_VALUE),
            CLUSTER => {
                let cluster = [value[0], value[1], value[2]];
                request.cluster = (cluster != [0; 3]).then_some(cluster);
            }
            UPDATABLE if value[0] != 0 => return Err(Code::NOT_SUPPORTED),
            UPDATABLE => {}
            _ if bytes(id).is_some() => _ = self.hints.insert(id, value),
            _ => return Err(Code::INVALID_VALUE),
        }
        Ok(())
    }
}

/// The bytes of an attribute that nodes have, as driver 580 wrote them. Those without a name here
/// hint at something which the simulator has not: windows of the cache, orders of clusters,
/// priorities, domains of memory and shares of shared memory.
fn bytes(id: c_int) -> Option<usize> {
    Some(match id {
        1 => 32,
        COOPERATIVE | 5 | PRIORITY | 10 | CARVEOUT => 4,
        CLUSTER => 12,
        DOMAINS => 2,
        UPDATABLE => 16,
        _ => return None,
    })
}

/// Arguments of a launch at addresses that stay, as C reads them.
#[derive(Debug)]
struct Arguments {
    /// The bytes of all arguments, each at its offset, aligned as any type is.
    _values: Box<[u128]>,
    /// The address of each.
    places: Box<[usize]>,
    /// The bytes of all, where the buffer says it.
    _size: Box<usize>,
    /// The values as a buffer, in pairs of names and values.
    buffer: Option<Box<[usize; 5]>>,
}

impl Arguments {
    fn new(launch: &Launch, are_in_buffer: bool) -> Self {
        let values: Box<[u128]> = launch
            .parameters
            .chunks(size_of::<u128>())
            .map(|chunk| {
                let mut bytes = [0; size_of::<u128>()];
                bytes.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
                u128::from_ne_bytes(bytes)
            })
            .collect();
        let start = values.as_ptr().expose_provenance();
        let parameters = launch.function.kernel().map(|kernel| kernel.parameters.as_slice());
        let places = parameters.unwrap_or_default().iter();
        let places = places.map(|one| start.wrapping_add(one.offset as usize)).collect();
        let size = Box::new(launch.parameters.len());
        // `CU_LAUNCH_PARAM_BUFFER_POINTER`, `CU_LAUNCH_PARAM_BUFFER_SIZE` and `CU_LAUNCH_PARAM_END`
        let pairs = || Box::new([1, start, 2, (&raw const *size).expose_provenance(), 0]);
        let buffer = are_in_buffer.then(pairs);
        Self { _values: values, places, _size: size, buffer }
    }
}
