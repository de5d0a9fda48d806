#include "textflag.h"

// func prefetch(first, last unsafe.Pointer)
TEXT ·prefetch(SB), NOSPLIT, $0-16
	MOVD first+0(FP), R0
	MOVD last+8(FP), R1
	PRFM (R0), PLDL1KEEP
	PRFM (R1), PLDL1KEEP
	RET
