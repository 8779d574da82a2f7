// loads K SHAPE: one kernel reads K arrays of 8 MiB that the host wrote, by loads that follow each other, and writes their sum to memory of the device.
#include <cstdio>
#include <cstdlib>
struct P { const float *i[8]; };
template<int K> __global__ void flat(float *o, P p){ int i = blockIdx.x*blockDim.x+threadIdx.x; float v[K];
 #pragma unroll
 for(int k=0;k<K;k++) v[k]=p.i[k][i];
 float s=0;
 #pragma unroll
 for(int k=0;k<K;k++) s+=v[k]*(k+1);
 o[i]=s; }
template<int K> __global__ void tile(float *o, P p, int cols){ int x=blockIdx.x*16+threadIdx.x,y=blockIdx.y*16+threadIdx.y; float v[K];
 #pragma unroll
 for(int k=0;k<K;k++) v[k]=p.i[k][y*cols+x];
 float s=0;
 #pragma unroll
 for(int k=0;k<K;k++) s+=v[k]*(k+1);
 o[y*cols+x]=s; }
template<int K> void go(int shape,float*o,P p,int n){ if(shape==0) flat<K><<<n/256,256>>>(o,p); else if(shape==1) flat<K><<<n/1024,1024>>>(o,p); else { int cols=2048; tile<K><<<dim3(cols/16,n/cols/16),dim3(16,16)>>>(o,p,cols);} }
int main(int c,char**v){ int K=atoi(v[1]),shape=atoi(v[2]); int n=2<<20; float*o; cudaMalloc(&o,n*4); P p; for(int k=0;k<8;k++){ float*q; cudaMallocManaged(&q,n*4); p.i[k]=q; if(k<K) for(int i=0;i<n;i++) q[i]=i; }
 switch(K){case 1:go<1>(shape,o,p,n);break;case 2:go<2>(shape,o,p,n);break;case 3:go<3>(shape,o,p,n);break;case 4:go<4>(shape,o,p,n);break;case 6:go<6>(shape,o,p,n);break;case 8:go<8>(shape,o,p,n);break;}
 printf("%d\n",cudaDeviceSynchronize()); }
