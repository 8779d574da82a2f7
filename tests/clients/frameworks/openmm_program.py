"""Forces of OpenMM's CUDA platform in its three precisions, against its reference platform.

Ewald sums are left out: NVIDIA's cuFFT contains NVIDIA's runtime, which has a driver of NVIDIA's only.
"""

import random
import sys

import numpy as np
import openmm as mm

COUNT, EDGE = 216, 3.0
random.seed(1)


def system(method):
    """Charged particles near a lattice, with bonds, angles and torsions."""
    made, forces = mm.System(), [mm.NonbondedForce(), mm.HarmonicBondForce()]
    forces += [mm.HarmonicAngleForce(), mm.PeriodicTorsionForce()]
    nonbonded, bonds, angles, torsions = forces
    nonbonded.setNonbondedMethod(method)
    nonbonded.setCutoffDistance(0.9)
    born = mm.GBSAOBCForce()
    positions = []
    for at in range(COUNT):
        made.addParticle(12.0)
        charge = (-1) ** at * 0.3
        nonbonded.addParticle(charge, 0.3, 0.5)
        born.addParticle(charge, 0.15, 0.8)
        place = (at % 6, at // 6 % 6, at // 36)
        positions.append(mm.Vec3(*(0.5 * c + 0.1 * random.random() for c in place)))
    for at in range(0, COUNT - 4, 4):
        bonds.addBond(at, at + 1, 0.15, 1000.0)
        angles.addAngle(at, at + 1, at + 2, 1.9, 50.0)
        torsions.addTorsion(at, at + 1, at + 2, at + 3, 2, 0.3, 10.0)
    if method == mm.NonbondedForce.NoCutoff:
        forces.append(born)
    else:
        made.setDefaultPeriodicBoxVectors((EDGE, 0, 0), (0, EDGE, 0), (0, 0, EDGE))
    for force in forces:
        made.addForce(force)
    return made, positions


def forces(made, positions, platform, properties):
    """The forces on the particles, after one step."""
    integrator = mm.VerletIntegrator(0.0005)
    context = mm.Context(made, integrator, mm.Platform.getPlatformByName(platform), properties)
    context.setPositions(positions)
    integrator.step(1)
    return context.getState(getForces=True).getForces(asNumpy=True)._value


def main():
    """Compares the median difference of forces with a bound of the precision."""
    failures = 0
    for method in ("NoCutoff", "CutoffPeriodic"):
        made, positions = system(getattr(mm.NonbondedForce, method))
        right = forces(made, positions, "Reference", {})
        for precision, bound in (("single", 1e-4), ("mixed", 1e-4), ("double", 1e-5)):
            ours = forces(made, positions, "CUDA", {"Precision": precision})
            off = np.linalg.norm(ours - right, axis=1) / np.linalg.norm(right, axis=1)
            is_right = np.median(off) < bound
            failures += not is_right
            print("passed" if is_right else "failed", f"{method}, {precision}", sep="\t")
    sys.exit(failures > 0)


main()
