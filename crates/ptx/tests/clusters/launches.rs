//! The clusters of a launch, and what modules with clusters lack.

use super::*;

#[test]
fn registers_say_where_a_block_is_in_its_cluster() {
    let registers = [
        "clusterid.x",
        "clusterid.y",
        "clusterid.z",
        "nclusterid.x",
        "nclusterid.y",
        "nclusterid.z",
        "cluster_ctaid.x",
        "cluster_ctaid.y",
        "cluster_ctaid.z",
        "cluster_nctaid.x",
        "cluster_nctaid.y",
        "cluster_nctaid.z",
        "cluster_ctarank",
        "cluster_nctarank",
        "is_explicit_cluster",
    ];
    let moves = registers.map(|name| {
        format!("mov.u32 %r0, %{name}; st.global.u32 [%out], %r0; add.s64 %out, %out, 4;\n")
    });
    let text = clustered(&format!(
        "mov.u32 %r1, %ctaid.y; mov.u32 %r2, %ctaid.z; mad.lo.u32 %r2, %r2, 4, %r1;
         mad.lo.u32 %r2, %r2, 6, %b; mul.wide.u32 %off, %r2, 64; add.s64 %out, %out, %off; {}
         mov.pred %p, %is_explicit_cluster; selp.u32 %r0, 1, 0, %p; st.global.u32 [%out], %r0;",
        moves.concat()
    ));
    for (cluster, shape) in
        [(Some([2, 2, 1]), [2, 2, 1]), (Some([3, 1, 2]), [3, 1, 2]), (None, [1; 3])]
    {
        let grid = [6, 4, 2];
        let (end, mut memory) = finish(start(&text, (grid, 1, cluster), &limited(5)).unwrap());
        assert!(matches!(end, Step::Done(_)), "{end:?}");
        for block in 0..48 {
            let at = [block % 6, block / 6 % 4, block / 24];
            let each =
                |f: fn(u32, u32) -> u32, of: Shape| [0, 1, 2].map(|axis| f(of[axis], shape[axis]));
            let [x, y, z] = each(|at, size| at % size, at);
            let rank = x + shape[0] * (y + shape[1] * z);
            let explicit = u32::from(cluster.is_some());
            let expected = [
                each(|at, size| at / size, at),
                each(|all, size| all / size, grid),
                [x, y, z],
                shape,
            ];
            let mut expected = expected.concat();
            expected.extend([rank, shape.iter().product(), explicit, explicit]);
            assert_eq!(
                memory.words(BASE + 64 * u64::from(block), 16),
                expected,
                "{block} of {cluster:?}"
            );
        }
    }
}

/// A kernel with a directive.
fn declared(directive: &str) -> String {
    module(&format!(
        ".visible .entry k(.param .u64 k_out) {directive} {{
         .reg .b32 %r<9>; .reg .b64 %out, %off; ld.param.u64 %out, [k_out];
         mov.u32 %r0, %ctaid.x; mul.wide.u32 %off, %r0, 4; add.s64 %out, %out, %off;
         mov.u32 %r1, %cluster_nctarank; mov.u32 %r2, %is_explicit_cluster;
         mad.lo.u32 %r1, %r1, 10, %r2; st.global.u32 [%out], %r1; ret; }}"
    ))
}

#[test]
fn a_kernel_declares_its_clusters() {
    let run = |directive: &str, cluster: Option<u32>| {
        let cluster = cluster.map(|x| [x, 1, 1]);
        let (end, mut memory) =
            finish(start(&declared(directive), ([8, 1, 1], 32, cluster), &limited(0))?);
        assert!(matches!(end, Step::Done(_)), "{end:?}");
        Ok(memory.words(BASE, 8)[7])
    };
    let differs = |declared: &str, given: Option<u32>| {
        let (declared, given) = (declared.to_owned(), given.map(|x| [x, 1, 1]));
        Err(StartError::DeclaredCluster { declared, given })
    };
    assert_eq!(run(".reqnctapercluster 4", None), Ok(41));
    assert_eq!(run(".explicitcluster .reqnctapercluster 4, 1, 1", Some(4)), Ok(41));
    assert_eq!(
        run(".reqnctapercluster 4", Some(2)),
        differs(".reqnctapercluster 4, 1, 1", Some(2))
    );
    assert_eq!(run(".explicitcluster", Some(2)), Ok(21));
    assert_eq!(run(".explicitcluster", None), differs(".explicitcluster", None));
    assert_eq!(run(".maxclusterrank 4", Some(4)), Ok(41));
    assert_eq!(run(".maxclusterrank 4", Some(8)), differs(".maxclusterrank 4", Some(8)));
    assert_eq!(run(".maxclusterrank 4", None), Ok(10));
    assert_eq!(run("", Some(1)), Ok(11));
}

#[test]
fn a_cluster_that_does_not_fit_is_refused() {
    let text = declared("");
    let refused = |grid: Shape, cluster: Shape, config: &Config| {
        start(&text, (grid, 32, Some(cluster)), config).unwrap_err()
    };
    for (grid, cluster) in [
        ([8, 1, 1], [3, 1, 1]),
        ([32, 1, 1], [32, 1, 1]),
        ([8, 8, 1], [4, 8, 1]),
        ([8, 1, 1], [0, 1, 1]),
    ] {
        let error = refused(grid, cluster, &Config::default());
        assert_eq!(error, StartError::Cluster { grid, cluster });
    }
    let limits = SmLimits { blocks: 1, ..Config::default().limits };
    let small = Config { sms: 7, limits, ..Config::default() };
    let error = refused([8, 1, 1], [8, 1, 1], &small);
    assert!(matches!(error, StartError::Resources { needed: 8, limit: 7, .. }), "{error}");
}

#[test]
fn what_clusters_lack_here_is_refused_by_name() {
    for (body, reason) in [
        (
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster
             [s], [%out], 64, [bar], %h;",
            "multicast::cluster",
        ),
        ("cp.async.bulk.global.shared::cta.bulk_group.cp_mask [%out], [s], 64, %h;", "cp_mask"),
        ("st.async.mmio.release.sys.global.b32 [%out], %r0;", "st.async"),
        ("red.async.mmio.release.sys.global.add.u32 [%out], %r0;", "red.async"),
        (
            "st.async.shared::cluster.mbarrier::complete_tx::bytes.b16 [%a], %h, [%a];",
            "no such type",
        ),
        ("mapa.u32 %r0, %a, %rank;", "generic address"),
        ("barrier.cluster.sync;", "one of .arrive, .wait"),
        ("barrier.cluster.wait.release;", "`.release`"),
        ("clusterlaunchcontrol.try_cancel.async.b128 [%a], [%a];", "clusterlaunchcontrol"),
    ] {
        let text = clustered(&format!(".reg .b16 %h; {body}"));
        let error = Module::load(&text, &Target { compute: (9, 0) }).expect_err(body);
        assert!(error.message.contains(reason), "{body}: {error}");
    }
    let error = Module::load(&declared(".blocksareclusters"), &Target { compute: (9, 0) });
    assert!(error.unwrap_err().message.contains(".blocksareclusters"));
}
