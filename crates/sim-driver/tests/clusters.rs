//! Clusters that a device holds, compared with what an H200 answered: `data/clusters.tsv`.

mod common;

use std::ffi::{c_int, c_uint, c_void};
use std::ptr::null_mut;

use common::{PTX, function_of, module_of, start};
use pagewise_driver::*;

/// The answers about a launch in clusters of so many blocks, as the recording writes them.
fn ask(function: *mut c_void, cluster: u32, block: c_uint, shared_bytes: c_uint) -> (c_int, c_int) {
    let mut value = [0; 16];
    [value[0], value[1], value[2]] = [cluster, 1, 1];
    let attribute = LaunchAttribute { id: 4, value: LaunchAttributeValue(value) };
    let config = LaunchConfig {
        grid: [192, 1, 1],
        block: [block, 1, 1],
        shared_bytes,
        stream: null_mut(),
        attributes: &raw const attribute,
        count: u32::from(cluster > 0),
    };
    let (mut clusters, mut potential) = (0, 0);
    // SAFETY: places are locals that outlive the calls; the configuration has one attribute.
    let codes = unsafe {
        (
            cuOccupancyMaxActiveClusters(&raw mut clusters, function, &raw const config),
            cuOccupancyMaxPotentialClusterSize(&raw mut potential, function, &raw const config),
        )
    };
    let answer = |code: c_int, value: c_int| if code == 0 { value } else { -code };
    (answer(codes.0, clusters), answer(codes.1, potential))
}

#[test]
fn a_device_holds_as_many_clusters_as_an_h200() {
    start();
    let (mut asked, mut kernels) = (0, Vec::new());
    for row in include_str!("data/clusters.tsv").lines().skip(1) {
        let fields: Vec<&str> = row.split('\t').collect();
        let number = |index: usize| fields[index].parse::<c_int>().expect("a number");
        let name = fields[0];
        let known = kernels.iter().find(|(known, _)| *known == name).map(|(_, function)| *function);
        let function = known.unwrap_or_else(|| {
            let function = function_of(module_of(PTX), name);
            kernels.push((name, function));
            function
        });
        assert_eq!(cuFuncSetAttribute(function, 14, number(1)), 0);
        assert_eq!(cuFuncSetAttribute(function, 8, number(4).max(49_152 - 1024)), 0);
        let sizes = (number(2) as u32, number(3) as c_uint, number(4) as c_uint);
        let found = ask(function, sizes.0, sizes.1, sizes.2);
        assert_eq!(found, (number(5), number(6)), "{row}");
        asked += 1;
    }
    assert!(asked > 200, "{asked} rows");
}

const REGISTERS: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 out)
{
    .reg .b32 %r<9>;
    .reg .b64 %d<3>;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %ctaid.y;
    mad.lo.u32 %r1, %r2, 4, %r1;
    mul.wide.u32 %d2, %r1, 16;
    add.u64 %d1, %d1, %d2;
    mov.u32 %r3, %cluster_ctarank;
    mov.u32 %r4, %cluster_nctarank;
    mov.u32 %r5, %clusterid.x;
    mov.u32 %r6, %clusterid.y;
    mad.lo.u32 %r5, %r6, 100, %r5;
    mov.u32 %r7, %cluster_ctaid.y;
    mov.u32 %r8, %nclusterid.x;
    mad.lo.u32 %r7, %r7, 100, %r8;
    st.global.v4.u32 [%d1], {%r3, %r4, %r5, %r7};
    ret;
}
";

/// The rank of each block of a grid of 4 by 2 in its cluster, the blocks of a cluster, the cluster as
/// 100 y + x, and 100 times the block's y in the cluster plus the clusters in x.
fn registers(cluster: Option<[u32; 2]>) -> Vec<[u32; 4]> {
    let function = function_of(module_of(REGISTERS), "kernel");
    let mut value = [0; 16];
    [value[0], value[1], value[2]] = cluster.map_or([0; 3], |[x, y]| [x, y, 1]);
    let attribute = LaunchAttribute { id: 4, value: LaunchAttributeValue(value) };
    let config = LaunchConfig {
        grid: [4, 2, 1],
        block: [1, 1, 1],
        shared_bytes: 0,
        stream: null_mut(),
        attributes: &raw const attribute,
        count: u32::from(cluster.is_some()),
    };
    let (mut out, mut values) = (0_u64, vec![[0; 4]; 8]);
    // SAFETY: places are locals that outlive the calls, and the memory is as long as the copy.
    unsafe {
        assert_eq!(cuMemAlloc_v2(&raw mut out, 128), 0);
        let mut places: [*mut c_void; 1] = [(&raw mut out).cast()];
        let launched =
            cuLaunchKernelEx(&raw const config, function, places.as_mut_ptr(), null_mut());
        assert_eq!(launched, 0);
        assert_eq!(cuMemcpyDtoH_v2(values.as_mut_ptr().cast(), out, 128), 0);
        assert_eq!(cuMemFree_v2(out), 0);
    }
    values
}

#[test]
fn blocks_read_their_place_in_a_cluster() {
    start();
    let of_one: Vec<[u32; 4]> =
        (0..8).map(|block| [0, 1, block / 4 * 100 + block % 4, 4]).collect();
    assert_eq!(registers(None), of_one);
    let of_four = |block: u32| {
        let (x, y) = (block % 4, block / 4);
        [x % 2 + 2 * y, 4, x / 2, 100 * y + 2]
    };
    assert_eq!(registers(Some([2, 2])), (0..8).map(of_four).collect::<Vec<_>>());
}

/// Each block writes its index into the shared memory of the next one of its cluster, and gives what
/// it finds in its own.
const RING: &str = "
.version 8.0
.target sm_90
.address_size 64
.visible .entry kernel(.param .u64 out)
DIRECTIVE
{
    .shared .align 4 .b32 word;
    .reg .b32 %r<9>;
    .reg .b64 %d<3>;
    ld.param.u64 %d1, [out];
    mov.u32 %r1, %ctaid.x;
    mov.u32 %r2, %cluster_ctarank;
    mov.u32 %r3, %cluster_nctarank;
    add.u32 %r2, %r2, 1;
    rem.u32 %r2, %r2, %r3;
    mapa.shared::cluster.u32 %r4, word, %r2;
    st.shared::cluster.u32 [%r4], %r1;
    barrier.cluster.arrive.release.aligned;
    barrier.cluster.wait.acquire.aligned;
    ld.shared.u32 %r5, [word];
    mul.wide.u32 %d2, %r1, 4;
    add.u64 %d1, %d1, %d2;
    st.global.u32 [%d1], %r5;
    ret;
}
";

/// Launches the ring in 16 blocks, in clusters of so many if there is a number, and gives the code,
/// and how many blocks of a cluster the words show.
fn ring(function: *mut c_void, cluster: Option<u32>) -> (c_int, Option<u32>) {
    let mut value = [0; 16];
    [value[0], value[1], value[2]] = [cluster.unwrap_or(0), 1, 1];
    let attribute = LaunchAttribute { id: 4, value: LaunchAttributeValue(value) };
    let config = LaunchConfig {
        grid: [16, 1, 1],
        block: [32, 1, 1],
        shared_bytes: 0,
        stream: null_mut(),
        attributes: &raw const attribute,
        count: u32::from(cluster.is_some()),
    };
    let (mut out, mut words) = (0_u64, [0_u32; 16]);
    // SAFETY: places are locals that outlive the calls, and the memory is as long as the copy.
    let launched = unsafe {
        assert_eq!(cuMemAlloc_v2(&raw mut out, 64), 0);
        let mut places: [*mut c_void; 1] = [(&raw mut out).cast()];
        let launched =
            cuLaunchKernelEx(&raw const config, function, places.as_mut_ptr(), null_mut());
        assert_eq!(cuMemcpyDtoH_v2(words.as_mut_ptr().cast(), out, 64), 0);
        assert_eq!(cuMemFree_v2(out), 0);
        launched
    };
    let ring_of = |blocks: &u32| {
        let before = |block: u32| block / blocks * blocks + (block + blocks - 1) % blocks;
        words.iter().zip(0..).all(|(word, block)| *word == before(block))
    };
    (launched, [1, 2, 4, 8, 16].into_iter().find(ring_of))
}

#[test]
fn a_launch_has_the_clusters_that_it_or_its_kernel_asks_for() {
    start();
    let kernel =
        |directive: &str| function_of(module_of(&RING.replace("DIRECTIVE", directive)), "kernel");
    let (plain, refused) = (kernel(""), (912, None));
    for blocks in [1, 2, 4, 8] {
        assert_eq!(ring(plain, Some(blocks)), (0, Some(blocks)));
    }
    assert_eq!(ring(plain, None), (0, Some(1)));
    assert_eq!(ring(plain, Some(3)), refused);
    assert_eq!(ring(plain, Some(16)), refused);
    assert_eq!(cuFuncSetAttribute(plain, 14, 1), 0);
    assert_eq!(ring(plain, Some(16)), (0, Some(16)));
    assert_eq!(
        [11, 12, 13].map(|axis| cuFuncSetAttribute(plain, axis, if axis == 11 { 4 } else { 1 })),
        [0; 3]
    );
    assert_eq!(ring(plain, None), (0, Some(4)));
    let required = kernel(".reqnctapercluster 2, 1, 1");
    assert_eq!(ring(required, None), (0, Some(2)));
    assert_eq!(ring(required, Some(2)), (0, Some(2)));
    assert_eq!(ring(required, Some(4)), refused);
    let explicit = kernel(".explicitcluster .maxclusterrank 4");
    assert_eq!(ring(explicit, Some(4)), (0, Some(4)));
    assert_eq!(ring(explicit, Some(8)), refused);
    assert_eq!(ring(explicit, None), refused);
}
