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
