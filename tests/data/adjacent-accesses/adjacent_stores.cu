// multi K SHAPE BARRIER: one kernel reads 8 MiB and writes K fresh arrays of 8 MiB with adjacent stores.
#include <cstdio>
#include <cstdlib>
struct P { float *o[8]; };
template<int K> __global__ void flat(const float *a, P p, int n){ int i = blockIdx.x*blockDim.x+threadIdx.x; if(i<n){ float v=a[i];
 #pragma unroll
 for(int k=0;k<K;k++) p.o[k][i]=v+k; } }
template<int K> __global__ void tile(const float *a, P p, int cols){ __shared__ float t[16][17]; int x=blockIdx.x*16+threadIdx.x,y=blockIdx.y*16+threadIdx.y; t[threadIdx.y][threadIdx.x]=a[y*cols+x]; __syncthreads(); float v=t[threadIdx.x][threadIdx.y];
 #pragma unroll
 for(int k=0;k<K;k++) p.o[k][y*cols+x]=v+k; }
template<int K> void go(int shape,const float*a,P p,int n){ if(shape==0) flat<K><<<n/256,256>>>(a,p,n); else if(shape==1) flat<K><<<n/1024,1024>>>(a,p,n); else { int cols=2048; tile<K><<<dim3(cols/16,n/cols/16),dim3(16,16)>>>(a,p,cols);} }
int main(int c,char**v){ int K=atoi(v[1]),shape=atoi(v[2]); int n=2<<20; float*a; cudaMallocManaged(&a,n*4); P p; for(int k=0;k<8;k++) cudaMallocManaged(&p.o[k],n*4); for(int i=0;i<n;i++) a[i]=i;
 switch(K){case 1:go<1>(shape,a,p,n);break;case 2:go<2>(shape,a,p,n);break;case 3:go<3>(shape,a,p,n);break;case 4:go<4>(shape,a,p,n);break;case 5:go<5>(shape,a,p,n);break;case 6:go<6>(shape,a,p,n);break;case 8:go<8>(shape,a,p,n);break;}
 printf("%d\n",cudaDeviceSynchronize()); }
