//! The start of a launch: what a kernel asks for against what the machine has.

use super::block::{Column, Shape, coordinates};
use super::engine::Rules;
use super::grid::Run;
use super::launch::{Config, Launch, StartError};
use crate::code::{Axis, has_wide_vectors};
use crate::module::{Kernel, KernelInfo};

/// The most blocks of a grid in x; in y and z there are at most 65535.
const MOST_X: u32 = i32::MAX as u32;
const MOST_YZ: u32 = 65535;

/// The fewest registers that a compiler may give a thread that has so many by the estimate. Of 400 kernels
/// that nvcc, Numba and Triton made, ptxas 13.0 gave none fewer than a 2.6th, and none with more than 192
/// fewer than a 1.5th.
const fn fewest(registers: u32) -> u32 {
    if registers <= 192 { registers / 3 } else { registers / 3 * 2 }
}

/// How many blocks of so many warps a multiprocessor's registers hold, by the estimate for a thread. One
/// block fits if a compiler may have given it few enough.
#[must_use]
pub fn blocks_by_registers(registers: u32, warps: u32, room: u32) -> u32 {
    // Registers are handed out to warps in pieces of 256.
    let of_block = |registers: u32| (registers * 32).next_multiple_of(256) * warps.max(1);
    let may_fit = of_block(fewest(registers)) <= room;
    (room / of_block(registers).max(1)).max(may_fit.into())
}

/// How many blocks of a kernel a multiprocessor holds: the least of what its registers, its shared
/// memory, its threads and its block slots allow. Zero if one block needs more than there is.
///
/// The kernel's registers are an estimate: see [`blocks_by_registers`].
#[must_use]
pub fn blocks_per_sm(info: &KernelInfo, config: &Config, threads: u32, dynamic_shared: u32) -> u32 {
    let limits = &config.limits;
    let warps = threads.div_ceil(32).max(1);
    let shared = info.static_shared.saturating_add(dynamic_shared);
    if threads > limits.block_threads || shared > limits.block_shared {
        return 0;
    }
    let shared = (shared + limits.reserved_shared).next_multiple_of(128).max(1);
    let by_threads = limits.threads / (warps * 32);
    let by_registers = blocks_by_registers(info.registers, warps, limits.registers);
    limits.blocks.min(by_threads).min(by_registers).min(limits.shared / shared)
}

impl Kernel {
    /// Starts a launch: the first blocks become resident. Nothing runs before [`Run::step`].
    ///
    /// # Errors
    /// If the shape, the parameters or the resources are not ones that the machine takes.
    pub fn start(&self, launch: &Launch<'_>, config: &Config) -> Result<Run, StartError> {
        let [gx, gy, gz] = launch.grid;
        let [bx, by, bz] = launch.block;
        let shape = StartError::Shape { grid: launch.grid, block: launch.block };
        let within =
            (1..=MOST_X).contains(&gx) && [gy, gz].iter().all(|axis| (1..=MOST_YZ).contains(axis));
        let block = (1..=1024).contains(&bx) && (1..=1024).contains(&by) && (1..=64).contains(&bz);
        if !within
            || !block
            || self.info.required_threads.is_some_and(|block| block != launch.block)
        {
            return Err(shape);
        }
        let cluster = self.cluster_of(launch)?;
        if (launch.params.len() as u64) < u64::from(self.info.param_bytes) {
            return Err(StartError::Parameters {
                expected: self.info.param_bytes,
                given: launch.params.len(),
            });
        }
        let threads = bx * by * bz;
        let blocks = u64::from(gx) * u64::from(gy) * u64::from(gz);
        let per_sm = self.resources(threads, launch.dynamic_shared, config)?;
        let resident = u64::from(per_sm) * u64::from(config.sms.max(1));
        let of_cluster = cluster.map_or(1, |cluster| cluster.iter().product()).into();
        if of_cluster > resident {
            let what = "blocks at a time";
            return Err(StartError::Resources { what, needed: of_cluster, limit: resident });
        }
        if launch.cooperative && blocks > resident {
            return Err(StartError::Cooperative { blocks, resident });
        }
        let rules = self.rules(launch, threads, cluster, config);
        let shared = self.static_shared.saturating_add(launch.dynamic_shared);
        let params = &launch.params[..self.info.param_bytes as usize];
        let slots = resident.min(blocks) as u32;
        Ok(Run::new(self, rules, (params, shared), (blocks, slots), config))
    }

    /// The rules of a launch of a shape that the machine takes.
    fn rules(
        &self,
        launch: &Launch<'_>,
        threads: u32,
        cluster: Option<[u32; 3]>,
        config: &Config,
    ) -> Rules {
        let coordinates = coordinates(launch.block);
        let of_values = |axes: &[Column; 3]| [0, 1, 2].map(|axis| Axis::of(&axes[axis].values));
        Rules {
            shape: Shape {
                grid: launch.grid,
                block: launch.block,
                threads,
                axes: coordinates.iter().map(of_values).collect(),
                coordinates,
                sms: config.sms,
                grid_id: config.grid_id,
                workspace: if launch.cooperative { config.workspace } else { 0 },
                dynamic_shared: launch.dynamic_shared,
                reserved_shared: self.reserved_shared,
                cluster: cluster.unwrap_or([1; 3]),
                has_clusters: cluster.is_some(),
            },
            local_limit: self.info.local.saturating_add(config.stack_bytes),
            wide_vectors: has_wide_vectors(),
        }
    }

    fn resources(
        &self,
        threads: u32,
        dynamic_shared: u32,
        config: &Config,
    ) -> Result<u32, StartError> {
        let refuse = |what, needed: u32, limit: u32| {
            Err(StartError::Resources { what, needed: u64::from(needed), limit: u64::from(limit) })
        };
        let most = self.info.max_threads.min(config.limits.block_threads);
        if threads > most {
            return refuse("threads", threads, most);
        }
        let shared = self.info.static_shared.saturating_add(dynamic_shared);
        if shared > config.limits.block_shared {
            return refuse("bytes of shared memory", shared, config.limits.block_shared);
        }
        match blocks_per_sm(&self.info, config, threads, dynamic_shared) {
            0 => refuse("registers", self.info.registers * threads, config.limits.registers),
            blocks => Ok(blocks),
        }
    }
}
