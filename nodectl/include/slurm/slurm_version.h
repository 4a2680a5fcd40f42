/* slurm/slurm_version.h: the version of the interface. Part of nodectl, MIT licence. */
#ifndef SLURM_VERSION_H
#define SLURM_VERSION_H

/* A version as a number that can be compared, and its parts: 22.05.8 is 0x160508. */
#define SLURM_VERSION_NUM(major, minor, micro) (((major) << 16) + ((minor) << 8) + (micro))
#define SLURM_VERSION_MAJOR(number) (((number) >> 16) & 0xff)
#define SLURM_VERSION_MINOR(number) (((number) >> 8) & 0xff)
#define SLURM_VERSION_MICRO(number) ((number) & 0xff)

#define SLURM_VERSION_NUMBER 0x160508

#endif
